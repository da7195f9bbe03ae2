"""Progress of this process, reported to the watchdog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

JOINING = "joining the other ranks"
"""State of a rank that waits for the others to join."""


class Progress:
    """Count of marks and the latest name; one writer, one reader thread.

    ``times_ns``: moments of the marks, since 1970, while :meth:`timed` is open.
    """

    __slots__ = ("count", "times_ns", "where")

    def __init__(self) -> None:
        self.count = 0
        self.where = "starting"
        self.times_ns: list[int] | None = None

    def mark(self, where: str) -> None:
        """Mark the beginning of ``where``."""
        self.count += 1
        self.where = where
        if self.times_ns is not None:
            self.times_ns.append(time.time_ns())

    def tick(self) -> None:
        """Count an unnamed step; thread-safe."""
        self.count += 1

    @contextmanager
    def timed(self) -> Iterator[list[int]]:
        """Moments of entry, every mark inside and exit, as they come."""
        self.times_ns = times_ns = [time.time_ns()]
        try:
            yield times_ns
        finally:
            times_ns.append(time.time_ns())
            self.times_ns = None


PROGRESS = Progress()
"""Progress of this process: the pipeline marks its passes, the heartbeat sends it."""
