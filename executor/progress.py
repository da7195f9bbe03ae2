"""What this process is doing, for the watchdog that looks after it."""

from __future__ import annotations


class Progress:
    """A count of things done and the name of the latest; written by one thread, read by another."""

    __slots__ = ("count", "where")

    def __init__(self) -> None:
        self.count = 0
        self.where = "starting"

    def mark(self, where: str) -> None:
        """Note that ``where`` begins."""
        self.count += 1
        self.where = where


PROGRESS = Progress()
"""This process's: the pipeline marks its passes in it, the heartbeat sends it."""
