"""Lowering a plan: the layers of each stage, with the units their parameters move in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...spec.choices import Recompute, SequenceParallel
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import EmbeddingLayer, HeadLayer, Layer, ModelSpec
from ...spec.model.towers import LayerContext, layer_contexts
from ...spec.parallel.batch_partition import group_samples
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import table_copies, with_table
from ...spec.strategy import LayerStrategy
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.training import LayerTraining
from ...spec.workload.workload import Workload
from ..sharding.fsdp_unit import FsdpUnit
from ..sharding.param_groups import UnitShape
from ..sharding.state_layouts import lower_unit
from ..symbolic.layer_shape import LayerShape
from ..technique import TechniquePrice, TechniquePrices, stack_with, technique_prices, unit_with
from ..techniques import TECHNIQUES
from .chunk import StageChunk, StageLayer
from .layer_lowering import LoweredLayer, lower_layer
from .tower_outputs import chunk_tower_outputs, tower_input_shapes

MAX_CACHED_CHUNKS = 4096
"""Chunks that are kept: plans that are enumerated have many in common."""


class Lowering:
    """Lowers the layers and units of one model, workload and stack, each kind once.

    Args:
        model: whose layers.
        workload: sequence length and number formats.
        stack: the software that runs them.
        techniques: prices of those that are known.
    """

    def __init__(
        self,
        model: ModelSpec,
        workload: Workload,
        stack: StackSpec,
        techniques: TechniquePrices = TECHNIQUES,
    ) -> None:
        self.model = model
        self.workload = workload
        self.stack = stack
        self.techniques: dict[str, TechniquePrice] = {each.name: each for each in techniques}
        self.layers = model.layers()
        self.trainings = workload.layer_trainings(model)
        self.contexts = layer_contexts(model, workload.seq_len)
        self.outputs = tuple(dict.fromkeys(s for place in self.contexts for s in place.sources))
        numbers: dict[tuple[Layer, LayerTraining, LayerContext], int] = {}
        self.kinds = tuple(
            numbers.setdefault(kind, len(numbers))
            for kind in zip(self.layers, self.trainings, self.contexts, strict=True)
        )
        self._lowered: dict[tuple[object, ...], LoweredLayer] = {}
        self._units: dict[tuple[object, ...], FsdpUnit] = {}
        self._chunks: dict[tuple[object, ...], tuple[StageChunk, LayerStrategy | None]] = {}

    def layer(
        self,
        index: int,
        strategy: LayerStrategy,
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
        shares_weight: bool = False,
        copies: bool = False,
    ) -> LoweredLayer:
        """One layer's micro-batch on a rank.

        Args:
            index: the layer's number.
            strategy: its decisions.
            before: strategy of the layer that feeds it, None for the first.
            ranks: ranks of its stage.
            samples: samples of a micro-batch over the stage.
            shares_weight: whether its table is also the head's of its chunk.
            copies: whether it holds a copy of its tower's table of relative positions.
        """
        place = self.contexts[index]
        alone = place.begins_tower and not place.sources
        layout = None if alone else differing_layout(before, strategy)
        batch = samples // strategy.data_parallel(ranks)
        key = (self.kinds[index], split_key(strategy), layout, batch, shares_weight, copies)
        if key not in self._lowered:
            shape = self.shape(index, split_only(strategy), layout, batch, shares_weight)
            # Kept simulators serve several threads: the first to be done wins, for numbers of
            # layers (id) are keys elsewhere, and no layer that has one may be thrown away.
            layer = with_table(self.model, index) if copies else self.layers[index]
            self._lowered.setdefault(key, lower_layer(layer, shape))
        return self._lowered[key]

    def shape(
        self,
        index: int,
        split: LayerStrategy,
        layout: LayerStrategy | None,
        batch: int,
        shares: bool,
    ) -> LayerShape:
        """What a layer is lowered under: its split, the differing layout before it, samples."""
        place, prices = self.contexts[index], technique_prices(split, self.techniques)
        return LayerShape(
            strategy=split,
            before=layout,
            batch=batch,
            seq_len=place.tokens,
            dtype=self.workload.dtype.param,
            stack=stack_with(self.stack, split, prices),
            shares_weight=shares,
            sources=tower_input_shapes(place, redistributes=layout is not None),
            matmul=self.workload.dtype.matmul,
            scaling=self.workload.dtype.scaling,
            training=self.trainings[index],
            prices=prices,
        )

    def unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool = False
    ) -> FsdpUnit:
        """The parameters of these layers under a strategy, as they move together.

        It is kept as long as this: numbers of units (id) are keys elsewhere, too.

        ``copies``: with a copy of the tower's table of relative positions, which a block holds.
        """
        key = self._unit_key(members, strategy, ranks, copies)
        if key not in self._units:
            self._units.setdefault(key, self._new_unit(members, strategy, ranks, copies))
        return self._units[key]

    def uncached_unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int
    ) -> FsdpUnit:
        """As :meth:`unit`, but not kept: tables of options need each of tens of thousands once."""
        known = self._units.get(self._unit_key(members, strategy, ranks, False))
        return self._new_unit(members, strategy, ranks, False) if known is None else known

    def _unit_key(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool
    ) -> tuple[object, ...]:
        kinds = tuple(self.kinds[i] for i in members)
        degrees = (strategy.tp, strategy.sequence_parallel, strategy.ep, strategy.etp)
        techniques = self._state_techniques(strategy)
        return (kinds, degrees, strategy.shard, ranks, techniques, copies)

    def _new_unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool
    ) -> FsdpUnit:
        shape = UnitShape(
            layers=tuple(with_table(self.model, i) if copies else self.layers[i] for i in members),
            strategy=replace(strategy, recompute="none", techniques={}),
            stage_ranks=ranks,
            seq_len=self.contexts[members[0]].tokens,
            dtype=self.workload.dtype,
            stack=self.stack,
            optimizer=self.workload.optimizer,
            trainings=tuple(self.trainings[i] for i in members),
        )
        unit, techniques = lower_unit(shape), dict(self._state_techniques(strategy))
        if not techniques:
            return unit
        own = replace(shape.strategy, techniques=techniques)
        return unit_with(replace(shape, strategy=own), unit, technique_prices(own, self.techniques))

    def _state_techniques(self, strategy: LayerStrategy) -> TechniqueKey:
        """A strategy's techniques but those that leave the layer's states alone."""
        return tuple(
            (name, value)
            for name, value in technique_key(strategy)
            if name not in self.techniques or self.techniques[name].unit is not None
        )

    def chunk(
        self,
        layers: tuple[tuple[int, LayerStrategy], ...],
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
        state_ranks: int | None = None,
    ) -> StageChunk:
        """Consecutive layers of a virtual stage.

        Args:
            layers: layer numbers and strategies, in order.
            before: strategy whose layout the activations come in, None at the start of the model
                and where they come in that of the first layer.
            ranks: ranks of one device group of the stage.
            samples: samples of a micro-batch over them.
            state_ranks: ranks of the whole stage, where it has several device groups.
        """
        key = (tuple([(i, id(s)) for i, s in layers]), id(before), ranks, samples, state_ranks)
        known = self._chunks.get(key)
        if known is None:
            if len(self._chunks) >= MAX_CACHED_CHUNKS:
                self._chunks.clear()
            # What is kept keeps the strategies too, so that their ids stay theirs.
            chunk = self._new_chunk(layers, before, ranks, samples, state_ranks)
            known = self._chunks[key] = (chunk, before)
        return known[0]

    def _new_chunk(
        self,
        layers: tuple[tuple[int, LayerStrategy], ...],
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
        state_ranks: int | None,
    ) -> StageChunk:
        holders = ranks if state_ranks is None else state_ranks
        tied = self._tied_ends(layers)
        holding = table_copies(self.model, [index for index, _ in layers])
        found: list[StageLayer] = []
        feeding, known = before, None
        for index, strategy in layers:
            # Most layers are as the one before: the same kind, strategy and layout before it.
            special = index in tied or index in holding
            like = None if special else (self.kinds[index], id(strategy), id(feeding))
            if like is not None and like == known:
                lowered, unit = found[-1].lowered, found[-1].unit
            else:
                shares, copies = index in tied[:-1], index in holding
                lowered = self.layer(index, strategy, feeding, ranks, samples, shares, copies)
                members = tied if index in tied[-1:] else (index,)
                unit = None if shares else self.unit(members, strategy, holders, copies)
            layer = holding.get(index, self.layers[index])
            found.append(StageLayer(index, layer, strategy, lowered, unit))
            feeding, known = strategy, like
        first, last = found[0], found[-1]
        ends = last.index + 1 == len(self.contexts) or self.contexts[last.index + 1].begins_tower
        itemsize = DTYPE_BYTES[self.workload.dtype.param]

        def local_bytes(tokens: int, hidden: int, strategy: LayerStrategy) -> int:
            own = samples // strategy.data_parallel(ranks)
            return tokens // strategy.sequence_split * own * hidden * itemsize

        return StageChunk(
            tuple(found),
            input_bytes=0 if self.contexts[first.index].begins_tower else first.lowered.input_bytes,
            output_bytes=0 if ends else last.lowered.output_bytes,
            sources=chunk_tower_outputs(self.contexts, self.outputs, layers, before, local_bytes),
        )

    def _tied_ends(self, layers: tuple[tuple[int, LayerStrategy], ...]) -> tuple[int, ...]:
        """Tables and head that are one weight inside one chunk, where it has the head.

        Tables that are one without the head in their chunk are counted each on its own.
        """
        if not self.model.tie_embeddings:
            return ()
        ends = [i for i, _ in layers if isinstance(self.layers[i], (EmbeddingLayer, HeadLayer))]
        with_head = bool(ends) and isinstance(self.layers[ends[-1]], HeadLayer)
        return tuple(ends) if with_head and len(ends) > 1 else ()

    def stages(self, plan: Plan) -> list[tuple[StageChunk, ...]]:
        """Every chunk of every stage of a plan, on the first device group of each."""
        every = plan.layer_strategies()
        return [self.stage(plan, stage, 0, every) for stage in range(len(plan.program.stages))]

    def stage(
        self,
        plan: Plan,
        stage: int,
        part: int = 0,
        every: tuple[LayerStrategy, ...] | None = None,
    ) -> tuple[StageChunk, ...]:
        """Every chunk of a stage of a plan.

        Args:
            plan: the plan.
            stage: number of the stage.
            part: which of its device groups.
            every: ``plan.layer_strategies()``, where whoever asks for many stages has them.
        """
        every = plan.layer_strategies() if every is None else every
        program, place = plan.program, plan.program.stages[stage]
        own, several = place.devices[part], len(place.devices) > 1
        samples = program.micro_batch_samples
        if several:
            samples = group_samples(place, samples)[part]
        found = []
        for number, parts in enumerate(place.virtual_stages):
            held = plan.chunk_layers(parts, own.device_group if several else None)
            layers = tuple((i, strategy) for i, _, strategy in held)
            first = layers[0][0]
            alike = first and program.same_entry_partition(stage, number)
            before = every[first - 1] if alike else None
            ranks = place.device_count if several else None
            found.append(self.chunk(layers, before, own.count, samples, ranks))
        return tuple(found)


def differing_layout(before: LayerStrategy | None, strategy: LayerStrategy) -> LayerStrategy | None:
    """``before`` where it holds activations differently from ``strategy``, else None."""
    if before is None:
        return None
    if before.layout == strategy.layout:
        return None
    return LayerStrategy(tp=before.tp, sequence_parallel=before.sequence_parallel, cp=before.cp)


TechniqueKey = tuple[tuple[str, Any], ...]


def technique_key(strategy: LayerStrategy) -> TechniqueKey:
    """Names and values of a strategy's techniques, in an order of their own."""
    return tuple(sorted(strategy.techniques.items())) if strategy.techniques else ()


def split_only(strategy: LayerStrategy) -> LayerStrategy:
    """A strategy with what :func:`split_key` says of it, and nothing else."""
    tp, sequence_parallel, cp, ep, etp, techniques, recompute = split_key(strategy)
    return LayerStrategy(
        tp=tp,
        sequence_parallel=sequence_parallel,
        cp=cp,
        ep=ep,
        etp=etp,
        recompute=recompute,
        techniques=dict(techniques),
    )


def split_key(
    strategy: LayerStrategy,
) -> tuple[int, SequenceParallel, int, int, int, TechniqueKey, Recompute]:
    """What shapes a layer's own work, recomputation last; sharding is the unit's business."""
    s = strategy
    return (s.tp, s.sequence_parallel, s.cp, s.ep, s.etp, technique_key(s), s.recompute)
