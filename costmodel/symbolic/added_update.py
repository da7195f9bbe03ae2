"""Work of a technique with a unit's update."""

from __future__ import annotations

from typing import NamedTuple

from .tape import WorkItem


class AddedUpdate(NamedTuple):
    """A technique's work with the update of one step in ``every``."""

    technique: str
    items: tuple[WorkItem, ...]
    every: int = 1
