"""The work of a layer put together from its parts, for tables of very many splits.

A block that adds its parts one after the other is lowered part by part: how experts are spread
changes nothing of the attention before them, and what attention recomputes nothing of the
experts. The passes of a layer are those of its parts in a row, so its kernels, collectives and
kept bytes are those of :func:`layer_lowering.lower_layer`; its peaks are not known this way. With
full
recomputation a block keeps its input and goes forward again before it goes backward.

A layer that is no such chain is one part, lowered whole; so is one whose parts are fused. What
techniques add to every micro-batch is one more part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...spec.model.feed_forward import Moe
from ...spec.model.layers import BlockLayer, MultiTokenLayer
from ...spec.strategy import LayerStrategy
from ..layers.block import last_residual_saves
from ..layers.heads import MultiTokenEnd
from ..layers.layer import LayerSegment
from ..symbolic.layer_shape import LayerShape
from ..symbolic.lowered_pass import LoweredPass
from ..technique import AddedPasses, added_passes, within_parts
from .layer_lowering import lower_accumulating, lower_layer
from .plan_lowering import Lowering, split_key, split_only

Passes = tuple[LoweredPass, ...]


class LoweredSubLayer:
    """One part of a layer, lowered; its rarer passes are found when they are asked for.

    Args:
        segment: the part.
        shape: its shape.
    """

    __slots__ = ("_accumulating", "_again", "_turns", "lowered")

    def __init__(self, segment: LayerSegment, shape: LayerShape) -> None:
        self.lowered = lower_layer(segment, shape)
        self._accumulating: LoweredPass | None = None
        self._again: dict[bool, LoweredPass] = {}
        self._turns: dict[tuple[bool, bool], LoweredPass] = {}

    def backward(self, accumulates: bool) -> LoweredPass:
        """Its backward; ``accumulates``: to gradients that are there."""
        if not accumulates:
            return self.lowered.backward
        if self._accumulating is None:
            self._accumulating = lower_accumulating(self.lowered.layer, self.lowered.shape)
        return self._accumulating

    def weights(self, accumulates: bool) -> LoweredPass:
        """Its weight gradients alone; ``accumulates``: to those there."""
        split = self.lowered.split_backward()
        return split.accumulating_weight if accumulates else split.weight

    def recomputed_forward(self, whole: bool) -> LoweredPass:
        """Its forward as recomputation, with the residual sum at its end or without."""
        if whole not in self._again:
            entries = self.lowered.forward.entries
            marked = (e._replace(recomputed=True) for e in (entries if whole else entries[:-1]))
            self._again[whole] = LoweredPass(tuple(marked), 0, 0)
        return self._again[whole]

    def recompute_then_backward(self, whole: bool, accumulates: bool) -> LoweredPass:
        """Recomputed and gone backward in one pass: what ends the one may hide the other's start.

        Without the residual sum between them the last product runs beside the first collective.
        """
        key = (whole, accumulates)
        if key not in self._turns:
            entries = (*self.recomputed_forward(whole).entries, *self.backward(accumulates).entries)
            self._turns[key] = LoweredPass(entries, 0, 0)
        return self._turns[key]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The parts of a layer: those before its block, of its block, and after it.

    ``recomputes``: the block runs again going backward, but for its last sum where the stack
    ``stops_early``. ``output_bytes`` is the activation handed to the next layer. ``added`` is what
    techniques do more, where the parts do not have it.
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
        """What the forward keeps for the backward, the layer's input with it."""
        changing = self._parts
        change_bytes = self._parts[0].lowered.input_bytes - self.output_bytes
        change_bytes += 0 if self.added is None else self.added.kept_bytes
        if self.recomputes:
            changing = (*self.before, *self.after)
            change_bytes += self.block[-1].lowered.output_bytes
        return change_bytes + sum(part.lowered.forward.change_bytes for part in changing)

    @property
    def waiting_bytes(self) -> int:
        """What the input part of a split backward leaves for the weight gradients alone."""
        weights = (part.weights(False) for part in self._parts)
        return sum(weight.gradient_bytes - weight.change_bytes for weight in weights)

    @property
    def forward(self) -> Passes:
        """Going forward."""
        own = tuple(part.lowered.forward for part in self._parts)
        return own if self.added is None else (*own, self.added.forward)

    def backward(self, accumulates: bool) -> Passes:
        """Going backward; ``accumulates``: to gradients that are there."""
        own = self._own_backward(accumulates)
        return own if self.added is None else (self.added.backward, *own)

    def _own_backward(self, accumulates: bool) -> Passes:
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
        """Its weight gradients; ``accumulates``: to those that are there."""
        return tuple(part.weights(accumulates) for part in reversed(self._parts))


class LayerWorkCache:
    """The work of the layers of a model, every part lowered once.

    Args:
        lowering: of the model, workload and stack.
    """

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._parts: dict[tuple[object, ...], LoweredSubLayer] = {}
        self._works: dict[tuple[object, ...], LayerWork] = {}

    def of(
        self, index: int, strategy: LayerStrategy, ranks: int, samples: int, shares_weight: bool
    ) -> LayerWork:
        """One layer's micro-batch on a rank, after a layer of the same layout.

        Args:
            index: the layer's number.
            strategy: its decisions.
            ranks: ranks of its stage.
            samples: samples of a micro-batch over the stage.
            shares_weight: whether its table is also the head's of its chunk.
        """
        batch = samples // strategy.data_parallel(ranks)
        place = (self._lowering.kinds[index], batch, shares_weight)
        key = (*place, split_key(strategy))
        if key not in self._works:

            def part(segment: LayerSegment, own: LayerShape) -> LoweredSubLayer:
                known = (*place, segment, split_key(own.strategy))
                if known not in self._parts:
                    self._parts[known] = LoweredSubLayer(segment, own)
                return self._parts[known]

            shape = self._lowering.shape(index, split_only(strategy), None, batch, shares_weight)
            self._works[key] = assemble_layer_work(self._lowering.layers[index], shape, part)
        return self._works[key]


def assemble_layer_work(
    layer: LayerSegment,
    shape: LayerShape,
    part: Callable[[LayerSegment, LayerShape], LoweredSubLayer] = LoweredSubLayer,
) -> LayerWork:
    """A layer's work from its parts.

    Args:
        layer: the layer.
        shape: its shape.
        part: lowers a part under its own shape, or finds what was lowered before.
    """
    joined = shape.stack.fusion.across_parts
    passes_on = shape.training.backward and not shape.sources and not joined
    before, block, after = _chain(layer) if passes_on else ((layer,), (), ())

    def lowered(segments: tuple[LayerSegment, ...]) -> tuple[LoweredSubLayer, ...]:
        return tuple(part(s, _sub_layer_shape(s, shape) if block else shape) for s in segments)

    first, inner, last = lowered(before), lowered(block), lowered(after)
    handing = first if after else inner or first
    return LayerWork(
        before=first,
        block=inner,
        after=last,
        recomputes=bool(block) and shape.strategy.recompute == "full",
        stops_early=shape.stack.recompute_stops_early and not _last_sum_keeps(block, shape),
        output_bytes=handing[-1].lowered.output_bytes,
        added=added_passes(layer, shape) if block else None,
    )


def _last_sum_keeps(block: tuple[LayerSegment, ...], shape: LayerShape) -> bool:
    last = block[-1] if block else None
    return isinstance(last, BlockLayer) and last_residual_saves(last, shape.stack)


def _chain(
    layer: LayerSegment,
) -> tuple[tuple[LayerSegment, ...], tuple[LayerSegment, ...], tuple[LayerSegment, ...]]:
    """What runs one after the other: before the block, the block's parts, after it."""
    if isinstance(layer, MultiTokenLayer) and (parts := _block_parts(layer.block)):
        return (MultiTokenEnd(layer, True),), parts, (MultiTokenEnd(layer, False),)
    if isinstance(layer, BlockLayer) and (parts := _block_parts(layer)):
        return (), parts, ()
    return (layer,), (), ()


def _block_parts(block: BlockLayer) -> tuple[LayerSegment, ...]:
    """The mixer and the feed-forward part as blocks of their own; none if it is no such chain."""
    if block.parallel or block.cross_attention is not None or block.norm_placement == "post":
        return ()
    if block.attention is None or block.mlp is None:
        return ()
    return replace(block, mlp=None), replace(block, attention=None)


def _sub_layer_shape(segment: LayerSegment, shape: LayerShape) -> LayerShape:
    """The shape with only those decisions that mean something to the part."""
    strategy = shape.strategy
    mixes = isinstance(segment, BlockLayer) and segment.attention is not None
    if not (isinstance(segment, BlockLayer) and isinstance(segment.mlp, Moe)):
        strategy = replace(strategy, ep=1, etp=1)
    if not mixes or strategy.recompute == "full":
        strategy = replace(strategy, recompute="none")
    if not shape.prices:
        return replace(shape, strategy=strategy)
    prices = within_parts(shape.prices)  # what they add to a whole layer is no part's
    names = {price.name for price in prices}
    kept = {name: value for name, value in strategy.techniques.items() if name in names}
    return replace(shape, strategy=replace(strategy, techniques=kept), prices=prices)
