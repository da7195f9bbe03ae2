"""Lower a plan: the layers of each stage, with their FSDP units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from ...spec.choices import Recompute, SequenceParallel
from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.model_spec import EmbeddingLayer, HeadLayer, Layer, ModelSpec
from ...spec.model.towers import LayerContext, layer_contexts
from ...spec.parallel.batch_partition import group_samples
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import table_copies, with_table
from ...spec.program_values import reduced_ranks
from ...spec.strategy import LayerStrategy
from ...spec.workload.document_lengths import require_documents
from ...spec.workload.expert_load import LoadBucket, layer_buckets
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.training import LayerTraining
from ...spec.workload.workload import Workload
from ..program_technique import (
    StepAdditions,
    StepShape,
    priced_values,
    program_stack,
    program_unit,
    program_window,
    step_additions,
)
from ..sharding.fsdp_unit import FsdpUnit
from ..sharding.param_groups import UnitShape
from ..sharding.state_layouts import lower_unit
from ..symbolic.layer_shape import LayerShape
from ..technique import TechniquePrice, TechniquePrices, stack_with, technique_prices, unit_with
from ..techniques import TECHNIQUES
from .chunk import StageChunk, StageLayer
from .layer_lowering import LoweredLayer, lower_layer
from .tower_outputs import chunk_tower_outputs, tower_input_shapes

NO_VALUES: Mapping[str, Any] = MappingProxyType({})
MAX_CACHED_CHUNKS = 4096
"""Cached chunks; enumerated plans have many in common."""
TechniqueKey = tuple[tuple[str, Any], ...]


class SplitKey(NamedTuple):
    """Decisions behind a layer's own work, as fields of its strategy."""

    tp: int
    sequence_parallel: SequenceParallel
    cp: int
    ep: int
    etp: int
    techniques: TechniqueKey
    recompute: Recompute


class Lowering:
    """Lower layers and units of one model, workload and stack, each once.

    ``techniques``: prices of known techniques; ``program``: values of the whole program, which
    change ``stack`` too.

    Raises:
        InputError: a program's value without a price.
    """

    def __init__(
        self,
        model: ModelSpec,
        workload: Workload,
        stack: StackSpec,
        techniques: TechniquePrices = TECHNIQUES,
        program: Mapping[str, Any] = NO_VALUES,
    ) -> None:
        self.model = model
        self.workload = workload
        self.techniques: dict[str, TechniquePrice] = {
            technique.name: technique for technique in techniques
        }
        self._of_states_alone = {t.name for t in techniques if not t.touches_passes}
        self._of_passes_alone = {t.name for t in techniques if not t.touches_states}
        self.program = program
        prices = {t.name: t.program for t in techniques if t.program is not None}
        self._priced_values = priced_values(program, prices)
        self._values = tuple(price.value for price in techniques)
        self.stack = program_stack(stack, self._priced_values)
        self.layers = model.layers()
        self.trainings = workload.layer_trainings(model)
        self.contexts = layer_contexts(model, workload.seq_len)
        require_documents(workload.lengths, self.stack.attention)
        self.documents = workload.document_tokens
        self.loads = layer_buckets(model, workload.expert_load)
        self.outputs = tuple(dict.fromkeys(s for context in self.contexts for s in context.sources))
        numbers: dict[tuple[Layer, LayerTraining, LayerContext, LoadBucket | None], int] = {}
        self.kinds = tuple(
            numbers.setdefault(kind, len(numbers))
            for kind in zip(self.layers, self.trainings, self.contexts, self.loads, strict=True)
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

        ``before``: strategy of the layer that feeds it, None for the first. ``ranks`` of its stage
        share ``samples`` of a micro-batch. ``shares_weight``: its table is also the head's of its
        chunk; ``copies``: it holds a copy of its tower's relative position table.
        """
        context = self.contexts[index]
        starts_tower = context.begins_tower and not context.sources
        layout = None if starts_tower else differing_layout(before, strategy)
        batch = samples // strategy.data_parallel(ranks)
        split = self.split_key(strategy)
        key = (self.kinds[index], split, layout, batch, shares_weight, copies)
        if key not in self._lowered:
            shape = self.shape(index, split_only(split), layout, batch, shares_weight)
            # Cached simulators serve several threads. The first result wins: ids of layers are keys
            # elsewhere, so no layer with one may be discarded.
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
        """Split, preceding layout and batch for lowering a layer."""
        context, prices = self.contexts[index], technique_prices(split, self.techniques)
        return LayerShape(
            strategy=split,
            before=layout,
            batch=batch,
            seq_len=context.tokens,
            dtype=self.workload.dtype.param,
            stack=stack_with(self.stack, split, prices),
            shares_weight=shares,
            sources=tower_input_shapes(context, redistributes=layout is not None),
            matmul=self.workload.dtype.matmul,
            scaling=self.workload.dtype.scaling,
            training=self.trainings[index],
            prices=prices,
            load=self.loads[index] if split.ep > 1 else None,
            documents=self.documents if context.tokens == self.workload.seq_len else None,
        )

    def unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool = False
    ) -> FsdpUnit:
        """FSDP unit of these layers' parameters under a strategy.

        Kept as long as this object: ids of units are keys elsewhere. ``copies``: with a block's
        copy of the tower's relative position table.
        """
        key = self._unit_key(members, strategy, ranks, copies)
        if key not in self._units:
            self._units.setdefault(key, self._new_unit(members, strategy, ranks, copies))
        return self._units[key]

    def uncached_unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int
    ) -> FsdpUnit:
        """As :meth:`unit`, uncached: option tables need tens of thousands once each."""
        cached = self._units.get(self._unit_key(members, strategy, ranks, False))
        return self._new_unit(members, strategy, ranks, False) if cached is None else cached

    def _unit_key(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool
    ) -> tuple[object, ...]:
        kinds = tuple(self.kinds[i] for i in members)
        degrees = (strategy.tp, strategy.sequence_parallel, strategy.ep, strategy.etp)
        techniques = self.state_techniques(strategy)
        return (kinds, degrees, strategy.shard, ranks, techniques, copies)

    def _new_unit(
        self, members: tuple[int, ...], strategy: LayerStrategy, ranks: int, copies: bool
    ) -> FsdpUnit:
        shape = UnitShape(
            layers=tuple(with_table(self.model, i) if copies else self.layers[i] for i in members),
            strategy=replace(strategy, recompute="none", techniques={}),
            stage_ranks=reduced_ranks(self.program, strategy, ranks, self._values),
            seq_len=self.contexts[members[0]].tokens,
            dtype=self.workload.dtype,
            stack=self.stack,
            optimizer=self.workload.optimizer,
            trainings=tuple(self.trainings[i] for i in members),
            clips=self.workload.gradient_clip_norm is not None,
        )
        unit, techniques = lower_unit(shape), dict(self.state_techniques(strategy))
        if techniques:
            shape = replace(shape, strategy=replace(shape.strategy, techniques=techniques))
            unit = unit_with(shape, unit, technique_prices(shape.strategy, self.techniques))
        return program_unit(replace(shape, stage_ranks=ranks), unit, self._priced_values)

    def step_additions(self, chunks: tuple[StageChunk, ...], ranks: int) -> StepAdditions:
        """Additions of the program's values to the step of a rank with these chunks.

        ``ranks``: of its stage.
        """
        if not self._priced_values:
            return ()
        entries = (entry for chunk in chunks for entry in chunk.layers)
        units = tuple(entry.unit for entry in entries if entry.unit is not None)
        return step_additions(
            StepShape(units, ranks, self.stack, self.workload), self._priced_values
        )

    def split_key(self, strategy: LayerStrategy) -> SplitKey:
        """Decisions behind a layer's own work; no sharding, nor techniques of states alone."""
        s = strategy
        techniques = _without(strategy, self._of_states_alone)
        return SplitKey(s.tp, s.sequence_parallel, s.cp, s.ep, s.etp, techniques, s.recompute)

    def state_techniques(self, strategy: LayerStrategy) -> TechniqueKey:
        """Techniques behind a layer's FSDP unit, in order."""
        return _without(strategy, self._of_passes_alone)

    def chunk(
        self,
        layers: tuple[tuple[int, LayerStrategy], ...],
        before: LayerStrategy | None,
        ranks: int,
        samples: int,
        state_ranks: int | None = None,
    ) -> StageChunk:
        """Consecutive layers of a virtual stage.

        ``layers``: numbers and strategies, in order. ``before``: strategy of the incoming
        activations' layout; None at the model's start or if it is the first layer's. ``ranks`` of
        one device group of the stage share ``samples``; ``state_ranks``: those of the whole stage,
        if it has several.
        """
        key = (tuple([(i, id(s)) for i, s in layers]), id(before), ranks, samples, state_ranks)
        cached = self._chunks.get(key)
        if cached is None:
            if len(self._chunks) >= MAX_CACHED_CHUNKS:
                self._chunks.clear()
            # The entry keeps the strategies alive, so that their ids stay unique.
            chunk = self._new_chunk(layers, before, ranks, samples, state_ranks)
            cached = self._chunks[key] = (chunk, before)
        return cached[0]

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
        table_blocks = table_copies(self.model, [index for index, _ in layers])
        stage_layers: list[StageLayer] = []
        feeding, previous_key = before, None
        for index, strategy in layers:
            # Most layers equal the previous one in kind, strategy and incoming layout.
            has_own_unit = index in tied or index in table_blocks
            layer_key = None if has_own_unit else (self.kinds[index], id(strategy), id(feeding))
            if layer_key is not None and layer_key == previous_key:
                lowered, unit = stage_layers[-1].lowered, stage_layers[-1].unit
            else:
                shares, copies = index in tied[:-1], index in table_blocks
                lowered = self.layer(index, strategy, feeding, ranks, samples, shares, copies)
                members = tied if index in tied[-1:] else (index,)
                unit = None if shares else self.unit(members, strategy, holders, copies)
            layer = table_blocks.get(index, self.layers[index])
            window = program_window(index, strategy, self._priced_values)
            stage_layers.append(StageLayer(index, layer, strategy, lowered, unit, window))
            feeding, previous_key = strategy, layer_key
        first, last = stage_layers[0], stage_layers[-1]
        ends = last.index + 1 == len(self.contexts) or self.contexts[last.index + 1].begins_tower
        itemsize = DTYPE_BYTES[self.workload.dtype.param]

        def local_bytes(tokens: int, hidden: int, strategy: LayerStrategy) -> int:
            local_samples = samples // strategy.data_parallel(ranks)
            return tokens // strategy.sequence_split * local_samples * hidden * itemsize

        return StageChunk(
            tuple(stage_layers),
            input_bytes=0 if self.contexts[first.index].begins_tower else first.lowered.input_bytes,
            output_bytes=0 if ends else last.lowered.output_bytes,
            sources=chunk_tower_outputs(self.contexts, self.outputs, layers, before, local_bytes),
        )

    def _tied_ends(self, layers: tuple[tuple[int, LayerStrategy], ...]) -> tuple[int, ...]:
        """Tables and head sharing one weight inside a chunk with the head.

        Tables without the head in their chunk are counted separately.
        """
        if not self.model.tie_embeddings:
            return ()
        ends = [i for i, _ in layers if isinstance(self.layers[i], (EmbeddingLayer, HeadLayer))]
        with_head = bool(ends) and isinstance(self.layers[ends[-1]], HeadLayer)
        return tuple(ends) if with_head and len(ends) > 1 else ()

    def stages(self, plan: Plan) -> list[tuple[StageChunk, ...]]:
        """Every chunk of a plan's stages, each on its first device group."""
        strategies = plan.layer_strategies()
        return [self.stage(plan, stage, 0, strategies) for stage in range(len(plan.program.stages))]

    def stage(
        self,
        plan: Plan,
        stage: int,
        part: int = 0,
        strategies: tuple[LayerStrategy, ...] | None = None,
    ) -> tuple[StageChunk, ...]:
        """Every chunk of a stage of a plan.

        ``part``: number of the device group; ``strategies``: ``plan.layer_strategies()``, if at
        hand.
        """
        strategies = plan.layer_strategies() if strategies is None else strategies
        program, stage_spec = plan.program, plan.program.stages[stage]
        devices, several = stage_spec.devices[part], len(stage_spec.devices) > 1
        samples = program.micro_batch_samples
        if several:
            samples = group_samples(stage_spec, samples)[part]
        chunks = []
        for number, parts in enumerate(stage_spec.virtual_stages):
            placed = plan.chunk_layers(parts, devices.device_group if several else None)
            layers = tuple((i, strategy) for i, _, strategy in placed)
            first = layers[0][0]
            same_entry = first and program.same_entry_partition(stage, number)
            before = strategies[first - 1] if same_entry else None
            ranks = stage_spec.device_count if several else None
            chunks.append(self.chunk(layers, before, devices.count, samples, ranks))
        return tuple(chunks)


def differing_layout(before: LayerStrategy | None, strategy: LayerStrategy) -> LayerStrategy | None:
    """``before`` if its activation layout differs from ``strategy``'s, else None."""
    if before is None:
        return None
    if before.layout == strategy.layout:
        return None
    return LayerStrategy(tp=before.tp, sequence_parallel=before.sequence_parallel, cp=before.cp)


def technique_key(strategy: LayerStrategy) -> TechniqueKey:
    """Names and values of a strategy's techniques, sorted by name."""
    return tuple(sorted(strategy.techniques.items())) if strategy.techniques else ()


def _without(strategy: LayerStrategy, names: set[str]) -> TechniqueKey:
    """A strategy's other techniques; unknown ones too, which are refused by name."""
    if not strategy.techniques:
        return ()
    return tuple([item for item in technique_key(strategy) if item[0] not in names])


def split_only(split: SplitKey) -> LayerStrategy:
    """A strategy with only the decisions of a split."""
    return LayerStrategy(**(split._asdict() | {"techniques": dict(split.techniques)}))
