"""Work of a technique beside a layer's pass, on a lane of its own."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .tape import WorkItem

Lane = Literal["to_host", "to_device", "drive_read", "drive_write", "host", "wire"]
LANES: tuple[Lane, ...] = ("to_host", "to_device", "drive_read", "drive_write", "host")
"""Lanes by number; the wire is the one of sharding traffic, since a link is one resource."""
Begins = Literal["gather", "before", "with", "after", "reduced"]


class LaneWork(NamedTuple):
    """Items in order on a lane, which is alone and runs its work as issued.

    ``begins``: when the layer before begins, and this one waits for the work (``before``), or its
    gather of parameters does (``gather``); with the layer; after it; or after the reduction of its
    gradients (``reduced``). ``lag``: the work is done before the layer so many places later begins,
    as where it frees one of ``lag`` buffers; 0: only the end of the pass waits for it.
    """

    technique: str
    lane: Lane
    items: tuple[WorkItem, ...]
    begins: Begins
    lag: int = 0


LaneWorks = tuple[LaneWork, ...]
NO_LANES: tuple[LaneWorks, LaneWorks] = ((), ())
