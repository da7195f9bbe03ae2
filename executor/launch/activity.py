"""Whether this process gets on, is kept from it, or waits for other ranks; for the heartbeat.

A process that neither computes nor makes progress may be starved of a core or wait for a disk;
only one that does none of it is idle. The main thread does all of a rank's work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

IN_COLLECTIVES = (f"{os.sep}torch{os.sep}distributed{os.sep}", f"{os.sep}mailbox.py")
"""Files in which a rank's main thread stands while it waits for another rank."""


class Activity:
    """What a process spends its time on: this one, asked from another thread, or a child.

    Args:
        process: number of the child; None for this process.
    """

    def __init__(self, process: int | None = None) -> None:
        self._folder = Path("/proc", "self" if process is None else str(process))
        self._is_own = process is None
        self._disk_s = 0.0
        self._asked_s = time.monotonic()

    def busy_s(self) -> float:
        """Seconds of computing, of waiting for a core and (sampled) for a disk, since the start."""
        now_s = time.monotonic()
        status = self._status()
        if status[:1] == ["D"]:
            self._disk_s += now_s - self._asked_s
        self._asked_s = now_s
        cpu_s = time.process_time() if self._is_own else _processor_s(status)
        return cpu_s + self._waited_for_core_s() + self._disk_s

    def _status(self) -> list[str]:
        """What the system says of the process, from its main thread's state (R, S, D) on."""
        try:
            text = (self._folder / "stat").read_text()
        except OSError:
            return []
        return text.rpartition(")")[2].split()

    def _waited_for_core_s(self) -> float:
        """Seconds that its main thread was ready to run and did not; 0 where it is not told."""
        try:
            return int((self._folder / "schedstat").read_text().split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):
            return 0.0


def waits_for_ranks() -> bool:
    """Whether the main thread is inside a collective or a message at this moment."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return False
    name = frame.f_code.co_filename
    return any(place in name for place in IN_COLLECTIVES)


def _processor_s(status: list[str]) -> float:
    """Seconds that a process has computed; 0 where the system does not tell."""
    return sum(map(int, status[11:13])) / os.sysconf("SC_CLK_TCK")
