"""Layers of a backward that sum waiting gradients beside exchanges of experts' rows."""

from __future__ import annotations

from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..lowering.waiting_sums import placed_sums, technique_of
from ..pricing.costs import TECHNIQUE
from ..pricing.pricer import Pricer
from .layer_slots import LayerSlot


def with_windows(
    slots: list[LayerSlot], chunk: StageChunk, numbers: list[int], kind: PassKind, pricer: Pricer
) -> list[LayerSlot]:
    """Slots of a chunk's last backward, with its waiting sums where they run.

    What a window makes longer counts under the technique; sums outside are a layer's reduction.
    """
    placed, name = placed_sums(chunk), technique_of(chunk)
    found = []
    for number, slot in zip(numbers, slots, strict=True):
        sums = placed[number]
        if sums.beside:
            backward = chunk.backward(number, kind.first, kind.part)
            copies_s, _ = pricer.split(sums.beside)
            added_s = pricer.window_s(backward, pricer.sums_s(sums.beside))
            slot = _longer(slot, name, added_s + copies_s)
        if sums.after:
            copies_s, sums_s = pricer.split(sums.after)
            slot = slot._replace(copy_s=slot.copy_s + copies_s, reduce_s=slot.reduce_s + sums_s)
        found.append(slot)
    return found


def _longer(slot: LayerSlot, name: str, seconds: float) -> LayerSlot:
    cost = slot.cost
    terms = list(cost.terms_s)
    terms[TECHNIQUE] += seconds
    return slot._replace(
        cost=cost._replace(
            time_s=cost.time_s + seconds,
            terms_s=tuple(terms),
            priced_s=cost.priced_s + seconds,
            technique_s=(*cost.technique_s, (name, seconds)),
        )
    )
