"""Whether this process gets on, is kept from it, or waits for other ranks; for the heartbeat.

A process that neither computes nor makes progress may be starved of a core or wait for a disk; only
one that does none of it is idle. The main thread does all of a rank's work.
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
    """What the main thread spends its time on, asked from another thread."""

    def __init__(self) -> None:
        self._disk_s = 0.0
        self._asked_s = time.monotonic()

    def busy_s(self) -> float:
        """Seconds of computing, of waiting for a core and (sampled) for a disk, since the start."""
        now_s = time.monotonic()
        if _state() == "D":
            self._disk_s += now_s - self._asked_s
        self._asked_s = now_s
        return time.process_time() + _waited_for_core_s() + self._disk_s


def waits_for_ranks() -> bool:
    """Whether the main thread is inside a collective or a message at this moment."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return False
    name = frame.f_code.co_filename
    return any(place in name for place in IN_COLLECTIVES)


def _state() -> str:
    """The main thread's state: R, S, D, …; empty where the system does not tell."""
    try:
        text = Path("/proc/self/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _waited_for_core_s() -> float:
    """Seconds that the main thread was ready to run and did not; 0 where it is not told."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
