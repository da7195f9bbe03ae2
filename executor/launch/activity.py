"""Activity of a process for its heartbeat: working, starved or waiting.

A process without computation or progress may lack a core or wait for a disk; only one that does
neither is idle. The main thread does all of a rank's work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

IN_COLLECTIVES = (f"{os.sep}torch{os.sep}distributed{os.sep}", f"{os.sep}mailbox.py")
"""Files on the main thread's stack while it waits for another rank."""


class Activity:
    """Busy time of a process, read from another thread or its parent.

    Args:
        process: number of a child; None for this process.
    """

    def __init__(self, process: int | None = None) -> None:
        self._folder = Path("/proc", "self" if process is None else str(process))
        self._is_own = process is None
        self._disk_s = 0.0
        self._sampled_s = time.monotonic()

    def busy_s(self) -> float:
        """Busy seconds since the start.

        Computing, waiting for a core, and (sampled) waiting for a disk.
        """
        now_s = time.monotonic()
        status = self._status()
        if status[:1] == ["D"]:
            self._disk_s += now_s - self._sampled_s
        self._sampled_s = now_s
        cpu_s = time.process_time() if self._is_own else _processor_s(status)
        return cpu_s + self._waited_for_core_s() + self._disk_s

    def _status(self) -> list[str]:
        """Fields of ``/proc/PID/stat``, from the main thread's state (R, S, D) on."""
        try:
            text = (self._folder / "stat").read_text()
        except OSError:
            return []
        return text.rpartition(")")[2].split()

    def _waited_for_core_s(self) -> float:
        """Seconds its main thread was runnable but not running; 0 if unknown."""
        try:
            return int((self._folder / "schedstat").read_text().split()[1]) * 1e-9
        except (OSError, IndexError, ValueError):
            return 0.0


def waits_for_ranks() -> bool:
    """True while the main thread is inside a collective or a message."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return False
    name = frame.f_code.co_filename
    return any(path in name for path in IN_COLLECTIVES)


def _processor_s(status: list[str]) -> float:
    return sum(map(int, status[11:13])) / os.sysconf("SC_CLK_TCK")
