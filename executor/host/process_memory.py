"""Memory of this process and of its host, as the operating system reports it."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

KIB = 1024
AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)


def resident_bytes() -> int:
    """Resident bytes now; the peak where the system reports only that."""
    current = _status("VmRSS")
    return current if current is not None else peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Peak resident bytes since the start or the last reset."""
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_bytes() -> int | None:
    """Bytes of the host's memory that may still be allocated; None if unknown."""
    try:
        match = AVAILABLE.search(Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return None if match is None else int(match[1]) * KIB


def reset_peak() -> None:
    """Restart the peak, where the system allows it (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # the peak then includes what was before
        return


def _status(key: str) -> int | None:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * KIB
    return None
