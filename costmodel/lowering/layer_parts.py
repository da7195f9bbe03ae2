"""Work of a layer assembled from sub-layers, for tables of splits.

Sequential sub-layers are lowered one by one: the experts' split changes nothing in the attention
before them, and recomputed attention nothing in the experts. Kernels, collectives and kept bytes
are those of :func:`layer_lowering.lower_layer`; peaks are at least those of the parts. Under full
recomputation a block keeps its input and runs forward again before its backward. Other layers, and
fused sub-layers, are one part; techniques' additions to every micro-batch are one more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...spec.model.feed_forward import Moe
from ...spec.model.layers import BlockLayer, MultiTokenLayer
from ...spec.recomputation import is_by_operation
from ...spec.strategy import LayerStrategy
from ..layers.block import last_residual_saves
from ..layers.heads import MultiTokenEnd
from ..layers.layer import LayerSegment
from ..symbolic.layer_shape import LayerShape
from ..symbolic.lowered_pass import LoweredPass
from ..technique import AddedPasses, added_passes, within_parts
from .layer_lowering import lower_accumulating, lower_layer
from .plan_lowering import Lowering, split_only

Passes = tuple[LoweredPass, ...]


class LoweredSubLayer:
    """One lowered sub-layer; its rarer passes are lowered on demand."""

    __slots__ = ("_accumulating", "_recompute_then_backward", "_recomputed", "lowered")

    def __init__(self, segment: LayerSegment, shape: LayerShape) -> None:
        self.lowered = lower_layer(segment, shape)
        self._accumulating: LoweredPass | None = None
        self._recomputed: dict[bool, LoweredPass] = {}
        self._recompute_then_backward: dict[tuple[bool, bool], LoweredPass] = {}

    def backward(self, accumulates: bool) -> LoweredPass:
        """Its backward; ``accumulates``: to existing gradients."""
        if not accumulates:
            return self.lowered.backward
        if self._accumulating is None:
            self._accumulating = lower_accumulating(self.lowered.layer, self.lowered.shape)
        return self._accumulating

    def weights(self, accumulates: bool) -> LoweredPass:
        """Its weight gradients alone; ``accumulates``: to existing ones."""
        split = self.lowered.split_backward()
        return split.accumulating_weight if accumulates else split.weight

    def recomputed_forward(self, with_residual: bool) -> LoweredPass:
        """Its forward as recomputation, with or without the last residual sum."""
        if with_residual not in self._recomputed:
            entries = self.lowered.forward.entries
            marked = (
                e._replace(recomputed=True) for e in (entries if with_residual else entries[:-1])
            )
            self._recomputed[with_residual] = LoweredPass(tuple(marked), 0, 0)
        return self._recomputed[with_residual]

    def recompute_then_backward(self, with_residual: bool, accumulates: bool) -> LoweredPass:
        """Recomputation and backward in one pass, to let them overlap.

        Without the residual sum between them, last product and first collective overlap.
        """
        key = (with_residual, accumulates)
        if key not in self._recompute_then_backward:
            entries = (
                *self.recomputed_forward(with_residual).entries,
                *self.backward(accumulates).entries,
            )
            self._recompute_then_backward[key] = LoweredPass(entries, 0, 0)
        return self._recompute_then_backward[key]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Sub-layers of a layer: before, in and after its block.

    ``recomputes``: the block runs again in the backward, except its last sum where the stack
    ``stops_early``. ``output_bytes``: activation for the next layer. ``added``: techniques' work
    that the sub-layers lack.
    """

    before: tuple[LoweredSubLayer, ...]
    block: tuple[LoweredSubLayer, ...]
    after: tuple[LoweredSubLayer, ...]
    recomputes: bool
    stops_early: bool
    output_bytes: int
    added: AddedPasses | None = None

    @property
    def _parts(self) -> tuple[LoweredSubLayer, ...]:
        return (*self.before, *self.block, *self.after)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept from forward to backward, including the layer's input."""
        counted = self._parts
        change_bytes = self._parts[0].lowered.input_bytes - self.output_bytes
        change_bytes += 0 if self.added is None else self.added.kept_bytes
        if self.recomputes:
            counted = (*self.before, *self.after)
            change_bytes += self.block[-1].lowered.output_bytes
        return change_bytes + sum(part.lowered.forward.change_bytes for part in counted)

    @property
    def waiting_bytes(self) -> int:
        """Bytes kept between the two parts of a split backward."""
        weights = (part.weights(False) for part in self._parts)
        return sum(weight.gradient_bytes - weight.change_bytes for weight in weights)

    @property
    def backward_peak_bytes(self) -> int:
        """Bytes beyond the kept ones at some moment of the backward, at least."""
        live_bytes = peak_bytes = 0
        for parts in (self.after, self.block, self.before):
            if self.recomputes and parts is self.block:
                saved_bytes = sum(part.lowered.forward.change_bytes for part in parts)
                live_bytes += max(0, saved_bytes - parts[-1].lowered.output_bytes)
            for part in reversed(parts):
                backward = part.lowered.backward
                gradient_bytes = backward.gradient_bytes  # contiguous buffers hold them already
                peak_bytes = max(peak_bytes, live_bytes + backward.peak_bytes - gradient_bytes)
                live_bytes += backward.change_bytes - gradient_bytes
        return peak_bytes

    @property
    def forward(self) -> Passes:
        """Forward passes."""
        passes = tuple(part.lowered.forward for part in self._parts)
        return passes if self.added is None else (*passes, self.added.forward)

    def backward(self, accumulates: bool) -> Passes:
        """Backward passes; ``accumulates``: to existing gradients."""
        passes = self._layer_backward(accumulates)
        return passes if self.added is None else (self.added.backward, *passes)

    def _layer_backward(self, accumulates: bool) -> Passes:
        after, block, before = (
            tuple(part.backward(accumulates) for part in reversed(parts))
            for parts in (self.after, self.block, self.before)
        )
        if not self.recomputes:
            return (*after, *block, *before)
        *first, last = self.block
        recomputed_forward = tuple(part.recomputed_forward(True) for part in first)
        recompute_then_backward = last.recompute_then_backward(not self.stops_early, accumulates)
        return (*after, *recomputed_forward, recompute_then_backward, *block[1:], *before)

    def weight_part(self, accumulates: bool) -> Passes:
        """Weight gradient passes; ``accumulates``: to existing gradients."""
        return tuple(part.weights(accumulates) for part in reversed(self._parts))


class LayerWorkCache:
    """Work of a model's layers, each sub-layer lowered once."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._parts: dict[tuple[object, ...], LoweredSubLayer] = {}
        self._works: dict[tuple[object, ...], LayerWork] = {}

    def of(
        self, index: int, strategy: LayerStrategy, ranks: int, samples: int, shares_weight: bool
    ) -> LayerWork:
        """A layer's micro-batch on a rank, after a layer of its layout.

        ``ranks`` of its stage share ``samples`` of a micro-batch. ``shares_weight``: the layer's
        table is also the head's of its chunk.
        """
        batch = samples // strategy.data_parallel(ranks)
        shape_key = (self._lowering.kinds[index], batch, shares_weight)
        split_key = self._lowering.split_key
        split = split_key(strategy)
        key = (*shape_key, split)
        if key not in self._works:

            def part(segment: LayerSegment, part_shape: LayerShape) -> LoweredSubLayer:
                part_key = (*shape_key, segment, split_key(part_shape.strategy))
                if part_key not in self._parts:
                    self._parts[part_key] = LoweredSubLayer(segment, part_shape)
                return self._parts[part_key]

            shape = self._lowering.shape(index, split_only(split), None, batch, shares_weight)
            self._works[key] = assemble_layer_work(self._lowering.layers[index], shape, part)
        return self._works[key]


def assemble_layer_work(
    layer: LayerSegment,
    shape: LayerShape,
    part: Callable[[LayerSegment, LayerShape], LoweredSubLayer] = LoweredSubLayer,
) -> LayerWork:
    """Assemble a layer's work from its sub-layers.

    ``part`` lowers a sub-layer under its shape, or returns a cached one.
    """
    fused = shape.stack.fusion.across_parts
    is_chain = shape.training.backward and not shape.sources and not fused
    is_chain = is_chain and not is_by_operation(shape.strategy.recompute)
    before, block, after = _chain(layer) if is_chain else ((layer,), (), ())

    def lowered(segments: tuple[LayerSegment, ...]) -> tuple[LoweredSubLayer, ...]:
        return tuple(part(s, _sub_layer_shape(s, shape) if block else shape) for s in segments)

    first, inner, last = lowered(before), lowered(block), lowered(after)
    last_forward = first if after else inner or first
    return LayerWork(
        before=first,
        block=inner,
        after=last,
        recomputes=bool(block) and shape.strategy.recompute == "full",
        stops_early=shape.stack.recompute_stops_early and not _last_sum_keeps(block, shape),
        output_bytes=last_forward[-1].lowered.output_bytes,
        added=added_passes(layer, shape, lower_layer) if block else None,
    )


def _last_sum_keeps(block: tuple[LayerSegment, ...], shape: LayerShape) -> bool:
    last = block[-1] if block else None
    return isinstance(last, BlockLayer) and last_residual_saves(last, shape.stack)


def _chain(
    layer: LayerSegment,
) -> tuple[tuple[LayerSegment, ...], tuple[LayerSegment, ...], tuple[LayerSegment, ...]]:
    if isinstance(layer, MultiTokenLayer) and (parts := _block_parts(layer.block)):
        return (MultiTokenEnd(layer, True),), parts, (MultiTokenEnd(layer, False),)
    if isinstance(layer, BlockLayer) and (parts := _block_parts(layer)):
        return (), parts, ()
    return (layer,), (), ()


def _block_parts(block: BlockLayer) -> tuple[LayerSegment, ...]:
    if block.parallel or block.cross_attention is not None or block.norm_placement == "post":
        return ()
    if block.attention is None or block.mlp is None:
        return ()
    return replace(block, mlp=None), replace(block, attention=None)


def _sub_layer_shape(segment: LayerSegment, shape: LayerShape) -> LayerShape:
    """The shape, reduced to decisions of the sub-layer."""
    strategy = shape.strategy
    mixes = isinstance(segment, BlockLayer) and segment.attention is not None
    if not (isinstance(segment, BlockLayer) and isinstance(segment.mlp, Moe)):
        strategy = replace(strategy, ep=1, etp=1)
    if not mixes or strategy.recompute == "full":
        strategy = replace(strategy, recompute="none")
    if not shape.prices:
        return replace(shape, strategy=strategy)
    prices = within_parts(shape.prices)  # additions to a whole layer belong to no sub-layer
    names = {price.name for price in prices}
    techniques = {name: value for name, value in strategy.techniques.items() if name in names}
    return replace(shape, strategy=replace(strategy, techniques=techniques), prices=prices)
