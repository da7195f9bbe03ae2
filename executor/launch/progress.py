"""What this process is doing, for the watchdog that looks after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

JOINING = "joining the other ranks"
"""Where a rank is that waits for the others to come to their meeting place."""


class Progress:
    """A count of things done and the name of the latest; written by one thread, read by another.

    ``times_ns`` are the moments of the marks, since 1970, while :meth:`timed` is open.
    """

    __slots__ = ("count", "times_ns", "where")

    def __init__(self) -> None:
        self.count = 0
        self.where = "starting"
        self.times_ns: list[int] | None = None

    def mark(self, where: str) -> None:
        """Note that ``where`` begins."""
        self.count += 1
        self.where = where
        if self.times_ns is not None:
            self.times_ns.append(time.time_ns())

    def tick(self) -> None:
        """Count something that is done without saying what; any thread may."""
        self.count += 1

    @contextmanager
    def timed(self) -> Iterator[list[int]]:
        """The moments of entering, of every mark inside, and of leaving, as they come."""
        self.times_ns = found = [time.time_ns()]
        try:
            yield found
        finally:
            found.append(time.time_ns())
            self.times_ns = None


PROGRESS = Progress()
"""This process's: the pipeline marks its passes in it, the heartbeat sends it."""
