"""The arena of this process's cores: planned addresses by pass, and records of requests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ...spec.errors import RunError
from ...spec.report.planned_addresses import RankAddresses
from .compiler import compiled_library

EVENT_NUMBERS = 4
BEGIN, END, MARK, BIRTH, BIRTH_ELSEWHERE, DEATH, DEATH_ELSEWHERE = range(7)
"""Kinds of recorded events; elsewhere: on another thread than the pass's, or outside passes."""


class AllocatorEvent(NamedTuple):
    """An event of a record: its kind, pass, and what was born or died."""

    kind: int
    number: int
    storage: int
    bytes: int


class ArenaCounts(NamedTuple):
    """Requests by how they were answered.

    ``served`` from the arena. The rest is torch's own memory: ``lasting`` ones by plan; ``extra``
    ones that their section does not have next; ``occupied`` where something lived yet; ``other``
    outside passes or on other threads. ``missing`` ones were planned, but not asked for.
    ``waited``: ends that another thread was waited for.
    """

    served: int
    lasting: int
    extra: int
    occupied: int
    missing: int
    waited: int
    other: int

    @property
    def unplanned(self) -> int:
        """Requests of passes that were not as planned."""
        return self.extra + self.occupied + self.missing


class CoreArena:
    """The allocator of this process, which answers from an arena once it has a plan."""

    def __init__(self) -> None:
        self._library = _library()
        if not self._library.arena_install():
            raise RunError("planned addresses: another allocator of cores is registered already")

    def plan(self, addresses: RankAddresses) -> None:
        """Take addresses for the passes of a step.

        Raises:
            RunError: there is no room for them.
        """
        passes, sections = len(addresses.passes), len(addresses.sections) - 1
        lists = (addresses.sections, addresses.sizes, addresses.offsets, addresses.untils)
        arrays = map(_numbers, lists)
        size = ctypes.c_int64(addresses.arena_bytes)
        first = (ctypes.c_int64(passes), _numbers(addresses.passes), ctypes.c_int64(sections))
        if not self._library.arena_plan(*first, *arrays, size):
            raise RunError(
                f"planned addresses: no room for an arena of {addresses.arena_bytes} bytes"
            )

    def forget(self) -> None:
        """Give all memory back to torch's own allocator, once nothing lives in the arena."""
        self._library.arena_forget()

    def close(self) -> None:
        """Forget the plan, and let torch's own allocator answer again."""
        self.forget()
        self._library.arena_remove()

    def begin(self, number: int) -> None:
        """Begin a pass of the step on this thread."""
        self._library.arena_begin(ctypes.c_int64(number))

    def end(self) -> None:
        """End the pass."""
        self._library.arena_end()

    def mark(self) -> None:
        """Begin another section of the pass."""
        self._library.arena_mark()

    def counts(self) -> ArenaCounts:
        """Requests since the plan was taken."""
        values = (ctypes.c_int64 * len(ArenaCounts._fields))()
        self._library.arena_counts(values)
        return ArenaCounts(*values)

    def resident_bytes(self) -> int:
        """Bytes of the arena's pages that are in memory."""
        return int(self._library.arena_resident_bytes())

    def record(self) -> None:
        """Begin to record events."""
        self._library.arena_record(1)

    def recorded(self) -> list[AllocatorEvent]:
        """End the record; return its events."""
        self._library.arena_record(0)
        count = int(self._library.arena_log(None))
        numbers = (ctypes.c_int64 * count)()
        self._library.arena_log(numbers)
        return [
            AllocatorEvent(*numbers[n : n + EVENT_NUMBERS]) for n in range(0, count, EVENT_NUMBERS)
        ]


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compiled_library("arena")))
    for name in ("arena_log", "arena_resident_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    return library
