"""Lower a layer under a strategy to kernels, collectives and live bytes.

One symbolic micro-batch per (layer kind, split, batch) suffices: equal layers share it.
``sharding`` lowers gathers, reductions and updates; ``memory`` and ``simulation`` the pipeline's
work.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from ...spec.model.model_spec import BlockLayer, EmbeddingLayer, MultiTokenLayer, PatchLayer
from ...spec.parallel.rank_groups import context_group, tensor_group
from ...spec.strategy import LayerStrategy
from ...spec.workload.expert_load import Fullest
from ..layers.heads import MultiTokenEnd
from ..layers.layer import LayerSegment, Outputs, run_layer
from ..layers.tower_inputs import run_tower_inputs
from ..ops.context import SINGLE_RANK, OpContext
from ..ops.dropout import drops
from ..ops.low_precision import Precision
from ..ops.redistribute import redistribute
from ..symbolic.lane_work import NO_LANES, LaneWorks
from ..symbolic.layer_shape import LayerShape, activation_shape
from ..symbolic.lowered_pass import LoweredPass, chain_passes
from ..symbolic.symbolic_tensor import Node, SymbolicTensor
from ..symbolic.tape import Tape
from ..symbolic.tier_bytes import TierBytes
from ..technique import added_backward, added_passes, host_work_of

ResultBytes = tuple[tuple[str, int], ...]
CACHE_ENTRIES = 65536
DATA_LAYERS = (EmbeddingLayer, PatchLayer)
BLOCKS = (BlockLayer, MultiTokenLayer, MultiTokenEnd)


@dataclass(frozen=True)
class LoweredLayer:
    """Forward and backward of a layer.

    ``keeps_input``: the forward saves its input for the backward. An embedding's tokens belong to
    the batch: its ``input_bytes`` are 0. ``tier_bytes``: techniques' bytes on other tiers between
    the passes; ``lanes``: their work beside the forward, and beside the backward, which has buffers
    of ``beside_bytes``.
    ``result_bytes``: of every named result.
    """

    layer: LayerSegment
    shape: LayerShape
    forward: LoweredPass
    backward: LoweredPass
    input_bytes: int
    output_bytes: int
    keeps_input: bool
    tier_bytes: TierBytes = ()
    result_bytes: ResultBytes = ()
    lanes: tuple[LaneWorks, LaneWorks] = NO_LANES
    beside_bytes: int = 0

    @property
    def redistributes_input(self) -> bool:
        """True if the input is redistributed to another layout, and released then."""
        before = _redistributed_from(self.layer, self.shape)
        return before is not None and before.layout != self.shape.strategy.layout

    def split_backward(self) -> SplitBackward:
        """The backward in two parts, lowered on demand."""
        return self._split

    @cached_property
    def _split(self) -> SplitBackward:
        return lower_split_backward(self.layer, self.shape)

    @cached_property
    def accumulating_backward(self) -> LoweredPass:
        """The backward with existing gradients, lowered on demand."""
        return lower_accumulating(self.layer, self.shape)


@lru_cache(maxsize=CACHE_ENTRIES)
def lower_layer(layer: LayerSegment, shape: LayerShape) -> LoweredLayer:
    """Lower one layer's micro-batch under its ``shape``."""
    first = _run(layer, shape, accumulating=False)
    return LoweredLayer(
        layer=layer,
        shape=shape,
        forward=first.forward,
        backward=first.backward,
        input_bytes=first.input_bytes,
        output_bytes=first.output_bytes,
        keeps_input=first.keeps_input,
        tier_bytes=first.tier_bytes,
        result_bytes=first.result_bytes,
        lanes=first.lanes,
        beside_bytes=first.beside_bytes,
    )


@dataclass(frozen=True, slots=True)
class SplitBackward:
    """A layer's backward in two passes: input gradients, weight gradients.

    The first leaves inputs and output gradients of linear layers alive for the second; gradients of
    norms, biases of row-split layers and tables come with the first. The ``accumulating`` passes
    add to existing gradients.
    """

    input: LoweredPass
    weight: LoweredPass
    accumulating_input: LoweredPass
    accumulating_weight: LoweredPass


@lru_cache(maxsize=CACHE_ENTRIES)
def lower_split_backward(layer: LayerSegment, shape: LayerShape) -> SplitBackward:
    """The backward of :func:`lower_layer` in two parts."""
    first, accumulating = (_run(layer, shape, added, splits=True) for added in (False, True))
    return SplitBackward(first.backward, first.weight, accumulating.backward, accumulating.weight)


@lru_cache(maxsize=CACHE_ENTRIES)
def lower_accumulating(layer: LayerSegment, shape: LayerShape) -> LoweredPass:
    """The backward of :func:`lower_layer` with gradients already present."""
    return _run(layer, shape, accumulating=True).backward


class _TracedLayer(NamedTuple):
    """Passes and bytes of a traced layer; ``weight``: of a split backward."""

    forward: LoweredPass
    backward: LoweredPass
    weight: LoweredPass
    input_bytes: int
    output_bytes: int
    keeps_input: bool
    tier_bytes: TierBytes = ()
    result_bytes: ResultBytes = ()
    lanes: tuple[LaneWorks, LaneWorks] = NO_LANES
    beside_bytes: int = 0


def _run(
    layer: LayerSegment, shape: LayerShape, accumulating: bool, splits: bool = False
) -> _TracedLayer:
    """Passes of the fullest rank: work of the median step, bytes of the 95th percentile."""
    load = shape.load
    if load is None:
        return _traced(layer, shape, accumulating, splits, ())
    work = _traced(layer, shape, accumulating, splits, load.rows)
    if load.memory_rows == load.rows:
        return work
    held = _traced(layer, shape, accumulating, splits, load.memory_rows)
    return held._replace(
        forward=_with_bytes_of(work.forward, held.forward),
        backward=_with_bytes_of(work.backward, held.backward),
        weight=_with_bytes_of(work.weight, held.weight),
        lanes=work.lanes,
    )


def _with_bytes_of(work: LoweredPass, held: LoweredPass) -> LoweredPass:
    return replace(held, entries=work.entries, host=work.host)


def _traced(
    layer: LayerSegment, shape: LayerShape, accumulating: bool, splits: bool, load: Fullest
) -> _TracedLayer:
    tape, strategy = _tape(shape, accumulating, splits), shape.strategy
    c = OpContext(
        tape=tape,
        stack=shape.stack,
        dtype=shape.dtype,
        tp=strategy.weight_split,
        sequence_parallel=strategy.megatron_sp,
        shares_weight=shape.shares_weight,
        ring=context_group(strategy),
        head_exchange=tensor_group(strategy) if strategy.ulysses else SINGLE_RANK,
        precision=_precision(layer, shape),
        base=None if shape.training.adapters is None else shape.training.adapters.quantized_base,
        training=shape.training,
        drops=drops(shape.stack, layer),
        load=load,
        documents=shape.documents,
    )
    before = shape.before or strategy
    x = _entry(tape, layer, shape, before)
    input_storage = weakref.ref(x.storage)
    batch_data = x if isinstance(layer, DATA_LAYERS) else None  # it outlives both passes
    input_bytes = tape.live_bytes if batch_data is None else 0
    start_bytes = tape.peak_bytes = tape.live_bytes
    leaf = Node((), 1, lambda *grads: grads)
    if batch_data is None:
        x.producer = (leaf, 0)
    if (redistributed_from := _redistributed_from(layer, shape)) is not None:
        x = redistribute(c, x, redistributed_from, strategy)
    weight_strategy = _weight_strategy(strategy)
    with nullcontext() if shape.training.backward else tape.not_recording():
        source_inputs, tower_inputs = run_tower_inputs(c, shape, before)
        outs = run_layer(c, layer, weight_strategy, x, shape.seq_len, source_inputs)
    del x, source_inputs
    output_bytes = 0 if outs.following is None else outs.following.size_bytes
    added = added_passes(layer, shape, lower_layer)
    lanes, beside_bytes = (NO_LANES, 0) if added is None else (added.lanes, added.beside_bytes)
    forward = _take_pass(tape, start_bytes, shape, forward=True)
    forward = forward if added is None else chain_passes(forward, added.forward)
    keeps_input = input_storage() is not None and (added is None or not added.releases_input)
    if not shape.training.backward:
        skipped, empty = LoweredPass((), 0, input_bytes - output_bytes), LoweredPass((), 0, 0)
        ends = input_bytes, output_bytes, keeps_input
        return _TracedLayer(forward, skipped, empty, *ends, (), (), lanes, beside_bytes)
    _set_output_gradients(tape, outs)
    del outs
    tower_inputs.set_gradients()
    tape.peak_bytes = start_bytes = tape.live_bytes
    tape.run_backward(tape.take_nodes())
    tower_inputs.add_gradients()
    backward = _take_pass(tape, start_bytes, shape)
    tape.peak_bytes = start_bytes = tape.live_bytes
    tape.run_weight_work()
    weight = _take_pass(tape, start_bytes, shape, backward.gradient_bytes)
    backward = backward if added is None else added_backward(backward, added)
    tier_bytes = () if added is None else added.kept_tier_bytes
    sizes = (input_bytes, output_bytes, keeps_input, tier_bytes, tuple(tape.result_bytes.items()))
    return _TracedLayer(forward, backward, weight, *sizes, lanes, beside_bytes)


def _tape(shape: LayerShape, accumulating: bool, splits: bool) -> Tape:
    frozen, stack = not shape.training.weights, shape.stack
    in_place = stack.fusion.weight_gradient_accumulation
    return Tape(accumulating, in_place, splits, frozen, stack=stack)


def _redistributed_from(layer: LayerSegment, shape: LayerShape) -> LayerStrategy | None:
    return None if isinstance(layer, DATA_LAYERS) else shape.before


def _precision(layer: LayerSegment, shape: LayerShape) -> Precision | None:
    """Low-precision format of linear products; only blocks have one."""
    if shape.matmul is None or not isinstance(layer, BLOCKS):
        return None
    return Precision(shape.matmul, shape.scaling, shape.stack.narrow_weights == "cached")


def _weight_strategy(strategy: LayerStrategy) -> LayerStrategy:
    if not strategy.ulysses:
        return strategy
    return replace(strategy, tp=1, sequence_parallel="none")


def _set_output_gradients(tape: Tape, outs: Outputs) -> None:
    for out in outs:
        if out is None:
            continue
        if out.producer is None:
            raise RuntimeError("a layer's output must be differentiable")
        node, index = out.producer
        node.gradients[index] = tape.like(out)


def _entry(
    tape: Tape, layer: LayerSegment, shape: LayerShape, before: LayerStrategy
) -> SymbolicTensor:
    if isinstance(layer, EmbeddingLayer):
        return tape.new((shape.seq_len // shape.strategy.input_split, shape.batch), "int64")
    if isinstance(layer, PatchLayer):
        tokens, samples, _ = activation_shape(shape, shape.strategy, shape.seq_len, layer.hidden)
        values = layer.channels * layer.frames * layer.patch * layer.patch
        return tape.new((tokens, samples, values), shape.dtype)
    return tape.new(activation_shape(shape, before, shape.seq_len, layer.hidden), shape.dtype)


def _take_pass(
    tape: Tape,
    start_bytes: int,
    shape: LayerShape,
    earlier_gradient_bytes: int = 0,
    forward: bool = False,
) -> LoweredPass:
    entries, tape.entries = tuple(tape.entries), []
    additions, tape.additions = tape.additions, 0
    return LoweredPass(
        entries,
        peak_bytes=tape.peak_bytes - start_bytes,
        change_bytes=tape.live_bytes - start_bytes,
        gradient_bytes=sum(g.storage.size_bytes for g in tape.parameter_gradients)
        - earlier_gradient_bytes,
        host=host_work_of(shape.strategy, entries, additions, forward, shape.prices),
    )
