"""Layers of a pass with what their techniques show on lanes of their own."""

from __future__ import annotations

from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..lowering.waiting_sums import placed_sums, waits
from ..pricing.pricer import Pricer
from ..symbolic.lowered_pass import LoweredPass
from ..technique_spans import LaneSpans, PricedPass, spans_of
from .layer_slots import LayerSlot


def with_own_spans(
    slots: list[LayerSlot], chunk: StageChunk, numbers: list[int], kind: PassKind, pricer: Pricer
) -> list[LayerSlot]:
    """Slots of a pass with their techniques' spans, counted from a layer's beginning."""
    if not any(price.spans for entry in chunk.layers for price in entry.lowered.shape.prices):
        return slots
    placed = placed_sums(chunk) if kind.last and not kind.forward and waits(chunk) else None
    cache: dict[tuple[object, ...], LaneSpans] = {}
    found = []
    for number, slot in zip(numbers, slots, strict=True):
        entry = chunk.layers[number]
        passes: tuple[LoweredPass, ...] = (entry.lowered.forward,)
        if not kind.forward:
            passes = chunk.backward_passes(number, kind.first, kind.last, kind.part)
        sums_s = 0.0 if placed is None else pricer.sums_s(placed[number].beside)
        key = (*map(id, passes), sums_s)
        if key not in cache:
            priced = PricedPass(entry.strategy, passes, pricer, sums_s)
            cache[key] = spans_of(entry.lowered.shape.prices, priced)
        found.append(slot._replace(spans=cache[key]))
    return found
