"""Legal layer strategies on stages of any device groups, and their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...costmodel.lowering.layer_parts import LayerWorkCache
from ...costmodel.simulation.simulator import Simulator
from ...spec.model.experts import experts_of
from ...spec.numbers import divisors
from ...spec.strategy import LayerStrategy
from ..space.search_space import Request, SearchSpace
from ..space.usual_options import FEW_OPTIONS
from ..tables.layer_costs import LayerCosts
from ..tables.option_table import OptionTable, OptionTables
from .stage_classes import StageClass, StageClasses, StageClassTable

RankClassTables = tuple[OptionTable, ...]
"""Tables of a layer, one a class of ranks of its stage; all have the same strategies as rows."""
StageTables = Sequence[RankClassTables | None]
"""Tables of every layer on one stage."""


class StageOptions:
    """Strategies and option tables of layer classes on stages."""

    def __init__(self, request: Request, simulator: Simulator, classes: StageClassTable) -> None:
        self.whole = SearchSpace(request, simulator)
        cluster = request.cluster
        self.alone = {
            group.name: SearchSpace(replace(request, cluster=cluster.alone(group.name)), simulator)
            for group in cluster.groups
        }
        self.works = LayerWorkCache(simulator.lowering)
        self._lowering = simulator.lowering
        self._classes = classes
        self._strategies: dict[tuple[object, ...], tuple[LayerStrategy, ...]] = {}
        self._builders: dict[tuple[object, ...], OptionTables] = {}
        self._tables: dict[tuple[object, ...], RankClassTables] = {}

    @property
    def holds_ends(self) -> bool:
        """True if some options stand for the numbers between theirs."""
        return any(s.techniques.holds_ends for s in (self.whole, *self.alone.values()))

    def strategies(self, layer_class: int, stage: StageClasses) -> tuple[LayerStrategy, ...]:
        """Legal strategies of a layer class, the same object for equal stages."""
        first = stage[0]
        if len(stage) == 1:
            return self.alone[first.group].options(layer_class, first.own, first.samples)
        key = (layer_class, tuple((c.own, c.samples) for c in stage))
        if key not in self._strategies:
            self._strategies[key] = tuple(self._shared(layer_class, stage))
        return self._strategies[key]

    def _shared(self, layer_class: int, stage: StageClasses) -> list[LayerStrategy]:
        """Strategies for every device group of a stage, whole samples a replica."""
        space, ranks = self.whole, stage[0].ranks
        index = space.first_of_class[layer_class]
        samples = sum(rank_class.samples for rank_class in stage)
        strategies: list[LayerStrategy] = []
        for dp in reversed(divisors(ranks)):
            width = ranks // dp
            if any(c.own % width or c.samples % (c.own // width) for c in stage):
                continue
            if index == 0 and samples % dp:  # the plan's micro_batch is their mean
                continue
            if not space.may_take(
                layer_class, samples, dp, max(c.samples * width // c.own for c in stage)
            ):
                continue
            strategies += [
                s
                for s in space.sharded(layer_class, ranks, dp, max(1, samples // dp))
                if experts_of(space.layers[index]) is None
                or all(c.own % (s.ep * s.etp) == 0 for c in stage)
            ]
        return strategies

    def usual(self, layer_class: int, stage: StageClasses) -> tuple[LayerStrategy, ...]:
        """Options for heuristics; see :meth:`SearchSpace.usual`."""
        first = stage[0]
        if len(stage) == 1:
            return self.alone[first.group].usual(layer_class, first.own, first.samples)
        key = (layer_class, "usual", tuple((c.own, c.samples) for c in stage))
        if key not in self._strategies:
            options = self.strategies(layer_class, stage)
            few = tuple(s for s in options if s.shard.parameters in (1, s.state_ranks(first.ranks)))
            self._strategies[key] = few if few and len(options) > FEW_OPTIONS else options
        return self._strategies[key]

    def tables(
        self,
        layer: int,
        stage: StageClasses,
        microbatches: int,
        members: tuple[int, ...] | None,
        overlaps_passes: bool,
        usual: bool = False,
        adds_to_tied: bool = True,
    ) -> RankClassTables | None:
        """Layer table for each rank class; None without a legal strategy.

        Args:
            layer: number of the layer.
            stage: rank classes of the stage.
            microbatches: micro-batches of a step.
            members: layers of the same FSDP unit, as ``OptionTables.table``.
            overlaps_passes: True if passes overlap.
            usual: keep to the usual strategies.
            adds_to_tied: as ``OptionTables.table``.
        """
        layer_class = self.whole.layer_classes[layer]
        key = (layer_class, stage, microbatches, members, overlaps_passes, usual, adds_to_tied)
        if key not in self._tables:
            choose = self.usual if usual else self.strategies
            strategies = choose(layer_class, stage)
            if not strategies:
                return None
            self._tables[key] = tuple(
                self._table(
                    layer,
                    strategies,
                    rank_class,
                    microbatches,
                    members,
                    overlaps_passes,
                    adds_to_tied,
                )
                for rank_class in stage
            )
        return self._tables[key]

    def _table(
        self,
        layer: int,
        strategies: tuple[LayerStrategy, ...],
        rank_class: StageClass,
        microbatches: int,
        members: tuple[int, ...] | None,
        overlaps_passes: bool,
        adds_to_tied: bool,
    ) -> OptionTable:
        key = (rank_class.group, rank_class.link_span)
        pricer = self._classes.pricer(rank_class)
        if key not in self._builders:
            self._builders[key] = OptionTables(LayerCosts(self._lowering, self.works, pricer))
        levels = len(pricer.machine.levels)
        return self._builders[key].table(
            layer,
            strategies,
            rank_class.ranks,
            rank_class.uniform_samples,
            microbatches,
            members,
            levels,
            overlaps_passes,
            adds_to_tied,
        )
