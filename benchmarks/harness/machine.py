"""The machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

GIB = 2**30
BUSY = 0.5
"""Load above which something else is at work here."""


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and the versions that figures depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_memory_bytes() / GIB, 1),
        "os": f"{platform.system()} {platform.release().partition('-')[0]}, {_distribution()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "accelerator": "none",
    }


def load() -> float:
    """Processes that wanted to run, mean of the last minute."""
    return round(os.getloadavg()[0], 2)


def spare_cores(own: int = 0) -> int:
    """Cores that nothing else wants to use, at least 1.

    Args:
        own: processes of ours that were at work in the last minute.
    """
    others = max(0.0, load() - own)
    return max(1, int(len(os.sched_getaffinity(0)) - others + BUSY))


def in_words(about: dict[str, Any]) -> str:
    """One line."""
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['os']}, "
        f"Python {about['python']}, torch {about['torch']}, numpy {about['numpy']}, "
        f"accelerator: {about['accelerator']}"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _distribution() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "unknown distribution"
    return release.get("PRETTY_NAME", release.get("NAME", "unknown distribution"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
