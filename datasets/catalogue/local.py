"""This machine's cores and memory, without torch and without running anything.

Cores are those that the process may use: its affinity mask and, if lower, the processor quota of
its control group. Memory is the machine's or, if lower, the control group's. Outside Linux there
is neither, so all cores count (``os.cpu_count``), memory is taken from ``os.sysconf``, and
assumed where that reports nothing.

Peak rates are derived from the processor's flags, FMA lanes times clock, and are ``assumed``:
flags do not tell whether two FMA units implement a vector width. A machine profile overrides
them. Worked number: Zen 4 at 2.6 GHz base: AVX-512 on 256-bit units is 32 fp32 FLOP a clock,
turbo assumed 1.4 times base: 116 GFLOP/s a core (102 measured).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TURBO_FACTOR = 1.4
"""Assumed clock of a busy core over the base clock, where the maximum is unknown."""
DEFAULT_MEMORY_BYTES = 4 * 1024**3
MACHINE_BANDWIDTH_BYTES_PER_S = 51.2e9
"""Assumed for the whole machine: two DDR4-3200 channels, which its cores share."""
CORE_BANDWIDTH_BYTES_PER_S = (4e9, 28e9)
"""Least and most that one core is assumed to stream; 28e9 was measured on AMD EPYC (Zen 4)."""
ASSUMED = "assumed: a profile of this machine overrides it; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The first processor of /proc/cpuinfo.

    The fields that the rates are derived from.
    """

    vendor: str = ""
    family: int = 0
    model: str = ""
    flags: frozenset[str] = frozenset()
    bogomips: float = 0.0
    clock_mhz: float = 0.0
    cache_bytes: int = 0
    threads_per_core: int = 1


def core_count(root: Path = Path("/")) -> int:
    """Cores that this process may use; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = _cpu_quota(root)
    return max(1, min(allowed, int(quota)) if quota is not None else allowed)


def memory_bytes(root: Path = Path("/")) -> int:
    """Memory available to all processes on this machine together."""
    limits = [_memory_total(root), *_group_limits(root)]
    present = [limit for limit in limits if limit]
    return min(present) if present else _system_memory()


def _memory_total(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _system_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return DEFAULT_MEMORY_BYTES * (os.cpu_count() or 1)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _group_folders(root: Path, controller: str) -> Iterable[Path]:
    """The process's control group and its ancestors (cgroup v2 and v1)."""
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, fields = line.partition(":")
        names, _, path = fields.partition(":")
        if names and controller not in names.split(","):
            continue
        tops = (base / controller, base / names) if names else (base, base / "unified")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for top in tops:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])


def _group_limits(root: Path) -> list[int]:
    limits = []
    for folder in _group_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name).strip()
            if text.isdigit() and 0 < int(text) < 2**60:  # version 1 writes 2**63 for no limit
                limits.append(int(text))
    return limits


def _cpu_quota(root: Path) -> float | None:
    quotas = []
    for folder in _group_folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        if not quota:
            quota = _text(folder / "cpu.cfs_quota_us").strip()
            period = _text(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


@cache
def processor(root: Path = Path("/")) -> Processor:
    """The first processor of /proc/cpuinfo; an empty record if there is none."""
    blocks = _text(root / "proc/cpuinfo").split("\n\n")
    pairs = [line.partition(":") for line in blocks[0].splitlines()]
    keys = {key.strip().casefold(): value.strip() for key, _, value in pairs}
    return Processor(
        vendor=keys.get("vendor_id", ""),
        family=int(_number(keys.get("cpu family", ""))),
        model=keys.get("model name", ""),
        flags=frozenset((keys.get("flags") or keys.get("features") or "").split()),
        bogomips=_number(keys.get("bogomips", "")),
        clock_mhz=_number(keys.get("cpu mhz", "")),
        cache_bytes=int(_number(keys.get("cache size", ""))) * 1024,
        threads_per_core=max(1, _threads_per_core(keys)),
    )


def _threads_per_core(keys: Mapping[str, str]) -> int:
    siblings, cores = _number(keys.get("siblings", "")), _number(keys.get("cpu cores", ""))
    return int(siblings // cores) if cores else 1


def _number(text: str) -> float:
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else 0.0


def flops_per_clock(core: Processor) -> tuple[int, str]:
    """fp32 FLOP a clock of one core, and the reason."""
    flags = core.flags
    if "avx512f" in flags:
        if core.vendor == "AuthenticAMD" and core.family < 26:
            return 32, "AVX-512 on two 256-bit FMA units (Zen 4)"
        return 64, "AVX-512, two 512-bit FMA units"
    if "avx2" in flags and "fma" in flags:
        return 32, "AVX2, two 256-bit FMA units"
    if "avx" in flags:
        return 16, "AVX, one multiply and one add of 256 bits"
    if "asimd" in flags or "neon" in flags:
        return 16, "NEON, two 128-bit FMA units"
    return 8, "SSE, one multiply and one add of 128 bits"


def clock_hz(core: Processor, root: Path = Path("/")) -> tuple[float, str]:
    """The clock of a busy core, and its source.

    Constant while the machine runs.
    """
    maximum_khz = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if maximum_khz.isdigit() and int(maximum_khz) > 0:
        return int(maximum_khz) * 1e3, "cpufreq's maximum"
    printed = re.search(r"@ (\d+(?:\.\d+)?)\s*GHz", core.model)
    base_hz = float(printed[1]) * 1e9 if printed else core.bogomips / 2 * 1e6
    if base_hz < 0.5e9:  # Arm's bogomips count a 25 to 100 MHz timer
        base_hz = core.clock_mhz * 1e6
    if base_hz < 0.5e9:
        return 2.5e9, "no clock told"
    rounded = round(base_hz, -7)  # bogomips differ by a few kHz from start to start
    return rounded * TURBO_FACTOR, f"{rounded / 1e9:.2f} GHz base x {TURBO_FACTOR} turbo"
