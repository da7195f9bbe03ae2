"""Lowering a plan: the layers of each stage, with the units their parameters move in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..spec.choices import Recompute, SequenceParallel
from ..spec.formats import DTYPE_BYTES
from ..spec.model import EmbeddingLayer, HeadLayer, Layer, ModelSpec
from ..spec.passes import BackwardPart
from ..spec.plan import Plan
from ..spec.sample_parts import group_samples
from ..spec.shared_bias import table_copies, with_table
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy
from ..spec.towers import LayerPlace, layer_places
from ..spec.training import LayerTraining
from ..spec.workload import Workload
from .chunk_sources import ChunkSource, chunk_sources, source_shapes
from .layer_shape import LayerShape
from .lower import LoweredLayer, lower_layer
from .lowered_pass import NO_PASS, LoweredPass
from .state_layouts import lower_unit
from .technique import Prices, TechniquePrice, prices_of, stack_with, unit_with
from .techniques import TECHNIQUES
from .unit import MOST_UNITS, Unit
from .unit_parts import UnitShape


@dataclass(frozen=True, slots=True)
class StageLayer:
    """One layer of a stage: where it is, what it costs a micro-batch, whose unit it belongs to.

    ``unit`` is None for an embedding whose parameters move with the head's.
    """

    index: int
    layer: Layer
    strategy: LayerStrategy
    lowered: LoweredLayer
    unit: Unit | None


@dataclass(frozen=True)
class StageChunk:
    """The layers of one virtual stage and the activations that cross its ends (0: none).

    ``sources`` are the outputs of towers that it reads from elsewhere, hands on, or makes.
    """

    layers: tuple[StageLayer, ...]
    input_bytes: int
    output_bytes: int
    sources: tuple[ChunkSource, ...] = ()

    @cached_property
    def layer_ids(self) -> tuple[tuple[int, int], ...]:
        """Equal for chunks of equal layers, wherever they are, while their lowering lives."""
        return tuple([(id(entry.lowered), id(entry.unit)) for entry in self.layers])

    @property
    def first_shared(self) -> int:
        """The first layer, counted from 0, whose parameters move with the head's; -1 for none."""
        return next((n for n, entry in enumerate(self.layers) if entry.unit is None), -1)

    @property
    def receives_bytes(self) -> int:
        """The message that comes in, going forward; going backward, its gradient goes out."""
        return self.input_bytes + sum(source.receives_bytes for source in self.sources)

    @property
    def sends_bytes(self) -> int:
        """The message that goes out, going forward; going backward, its gradient comes in."""
        return self.output_bytes + sum(source.sends_bytes for source in self.sources)

    def backward(self, number: int, first: bool, part: BackwardPart = "whole") -> LoweredPass:
        """Layer ``number``'s work going backward, in the first micro-batch or a later one.

        All of it, or one ``part`` where the schedule splits it.

        A later one adds its gradients to those that are there, unless its unit has reduced
        them away or keeps them in another number format. An embedding whose unit is not in
        this chunk adds nothing, which makes its work a lower bound.
        """
        entry = self.layers[number]
        unit = entry.unit or self.layers[-1].unit
        fresh = unit is None or unit.starts_anew
        lowered = entry.lowered
        if part == "whole":
            return lowered.backward if first or fresh else lowered.accumulating_backward
        split = lowered.split_backward()
        if part == "input":
            return split.input if first or fresh else split.accumulating_input
        return split.weight if first or fresh else split.accumulating_weight

    def backward_passes(
        self, number: int, first: bool, last: bool, part: BackwardPart
    ) -> tuple[LoweredPass, ...]:
        """:meth:`backward`, and what techniques do once the layer's gradients are complete."""
        own, unit = self.backward(number, first, part), self.layers[number].unit
        if unit is None or not last or part == "input" or unit.added == NO_PASS:
            return (own,)
        return (own, unit.added)


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
        techniques: Prices = TECHNIQUES,
    ) -> None:
        self.model = model
        self.workload = workload
        self.stack = stack
        self.techniques: dict[str, TechniquePrice] = {each.name: each for each in techniques}
        self.layers = model.layers()
        self.trainings = workload.layer_trainings(model)
        self.places = layer_places(model, workload.seq_len)
        self.outputs = tuple(dict.fromkeys(s for place in self.places for s in place.sources))
        numbers: dict[tuple[Layer, LayerTraining, LayerPlace], int] = {}
        self.kinds = tuple(
            numbers.setdefault(kind, len(numbers))
            for kind in zip(self.layers, self.trainings, self.places, strict=True)
        )
        self._lowered: dict[tuple[object, ...], LoweredLayer] = {}
        self._units: dict[tuple[object, ...], Unit] = {}

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
        split, place = split_only(strategy), self.places[index]
        alone = place.begins and not place.sources
        layout = None if alone else differing_layout(before, strategy)
        batch = samples // strategy.data_parallel(ranks)
        key = (self.kinds[index], split, layout, batch, shares_weight, copies)
        if key not in self._lowered:
            shape = self.shape(index, split, layout, batch, shares_weight)
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
        place, prices = self.places[index], prices_of(split, self.techniques)
        return LayerShape(
            strategy=split,
            before=layout,
            batch=batch,
            seq_len=place.tokens,
            dtype=self.workload.dtype.param,
            stack=stack_with(self.stack, split, prices),
            shares_weight=shares,
            sources=source_shapes(place, moves=layout is not None),
            matmul=self.workload.dtype.matmul,
            scaling=self.workload.dtype.scaling,
            training=self.trainings[index],
            prices=prices,
        )

    def unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool = False
    ) -> Unit:
        """The parameters of these layers under a strategy, as they move together.

        ``copies``: with a copy of the tower's table of relative positions, which a block holds.
        """
        kinds = tuple(self.kinds[i] for i in members)
        degrees = (strategy.tp, strategy.sequence_parallel, strategy.ep, strategy.etp)
        own = self._of_states(strategy)
        key = (kinds, degrees, strategy.shard, ranks, technique_key(own), copies)
        if key not in self._units:
            shape = UnitShape(
                layers=tuple(
                    with_table(self.model, i) if copies else self.layers[i] for i in members
                ),
                strategy=replace(strategy, recompute="none", techniques={}),
                stage_ranks=ranks,
                seq_len=self.places[members[0]].tokens,
                dtype=self.workload.dtype,
                stack=self.stack,
                optimizer=self.workload.optimizer,
                trainings=tuple(self.trainings[i] for i in members),
            )
            unit = lower_unit(shape)
            if own.techniques:
                prices = prices_of(own, self.techniques)
                unit = unit_with(replace(shape, strategy=own), unit, prices)
            if len(self._units) >= MOST_UNITS:
                self._units.clear()
            self._units[key] = unit
        return self._units[key]

    def _of_states(self, strategy: LayerStrategy) -> LayerStrategy:
        """The strategy without recomputation and techniques that leave the layer's states alone."""
        own = {
            name: value
            for name, value in strategy.techniques.items()
            if name not in self.techniques or self.techniques[name].unit is not None
        }
        return replace(strategy, recompute="none", techniques=own)

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
        ends = last.index + 1 == len(self.places) or self.places[last.index + 1].begins
        itemsize = DTYPE_BYTES[self.workload.dtype.param]

        def local_bytes(tokens: int, hidden: int, strategy: LayerStrategy) -> int:
            own = samples // strategy.data_parallel(ranks)
            return tokens // strategy.sequence_split * own * hidden * itemsize

        return StageChunk(
            tuple(found),
            input_bytes=0 if self.places[first.index].begins else first.lowered.input_bytes,
            output_bytes=0 if ends else last.lowered.output_bytes,
            sources=chunk_sources(self.places, self.outputs, layers, before, local_bytes),
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
            alike = first and program.enters_alike(stage, number)
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
