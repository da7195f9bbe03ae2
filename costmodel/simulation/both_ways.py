"""Copies to and from the host that run at once: each slows the other.

A layer's lanes hold both directions where one layer's gradients go down beside the copy up for the
next one. Those beside the same layer count as at once: with factor f each copy is longer by (f - 1)
times the shorter of itself and of all that goes the other way, so none gets shorter as one grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pricing.overlap import slowed
from ..symbolic.lane_work import Begins, Lane

if TYPE_CHECKING:
    from .layer_slots import LayerSlot

HOST_COPIES: tuple[Lane, Lane] = ("to_host", "to_device")
"""Lanes of the two directions of a device's link to its host."""
BESIDE: tuple[tuple[int, tuple[Begins, ...]], ...] = (
    (-1, ("after", "reduced")),
    (0, ("with",)),
    (1, ("gather", "before")),
)
"""Which works of the layer before, of itself and of the next one run beside a layer."""


def with_both_ways(slots: list[LayerSlot], factor: float) -> list[LayerSlot]:
    """Layers of a pass whose copies both ways have their seconds at once.

    ``factor``: of what coexists; 1 for a link that is full duplex.
    """
    if factor <= 1.0 or not any(slot.lanes for slot in slots):
        return slots
    lanes = [slot.lanes for slot in slots]
    for beside in range(-1, len(slots) + 1):
        works = [
            (number, position, work)
            for step, begins in BESIDE
            if 0 <= (number := beside + step) < len(slots)
            for position, work in enumerate(slots[number].lanes)
            if work.begins in begins
        ]
        down_s, up_s = (sum(w.seconds for *_, w in works if w.lane == x) for x in HOST_COPIES)
        other_s = {"to_host": up_s, "to_device": down_s}
        for number, position, work in works:
            longer_s = slowed(work.seconds, other_s.get(work.lane, 0.0), factor)
            own, longer = lanes[number], work._replace(seconds=longer_s)
            lanes[number] = (*own[:position], longer, *own[position + 1 :])
    return [slot._replace(lanes=own) for slot, own in zip(slots, lanes, strict=True)]
