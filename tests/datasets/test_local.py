"""This machine, read from /proc and /sys: control groups, memory, derived rates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwright.datasets.catalogue.device import device, local_core
from shardwright.datasets.catalogue.local import (
    DEFAULT_MEMORY_BYTES,
    Processor,
    clock_hz,
    core_count,
    flops_per_clock,
    memory_bytes,
    processor,
)
from shardwright.datasets.catalogue.tables import read_table

GIB = 1024**3
ZEN4 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model name\t: AMD EPYC
cpu MHz\t\t: 2596.148
cache size\t: 1024 KB
siblings\t: 4
cpu cores\t: 2
flags\t\t: fpu avx avx2 fma avx512f avx512_bf16
bogomips\t: 5192.29

processor\t: 1
"""


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal:       {8 * 1024**2} kB\nMemFree: 1 kB\n"}


def test_affinity_and_memory_count_without_control_groups(tmp_path: Path) -> None:
    root = _write(tmp_path, MEMINFO)
    assert core_count(root) == 4
    assert memory_bytes(root) == 8 * GIB


def test_version_2_limits_of_the_group_and_its_ancestors(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/job/step\n",
            "sys/fs/cgroup/job/step/memory.max": "max\n",
            "sys/fs/cgroup/job/memory.max": f"{3 * GIB}\n",
            "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        },
    )
    assert core_count(root) == 2  # 2.5 processors are two whole ones
    assert memory_bytes(root) == 3 * GIB


def test_version_1_limits(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/\n",
            "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{5 * GIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
        },
    )
    assert core_count(root) == 3
    assert memory_bytes(root) == 5 * GIB


def test_a_quota_below_one_core_is_one_core(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}
    assert core_count(_write(tmp_path, files)) == 1


def test_a_group_path_cannot_leave_the_tree(tmp_path: Path) -> None:
    outside = tmp_path / "memory.max"
    outside.write_text("4096")
    files = {**MEMINFO, "proc/self/cgroup": "0::/../../..\n"}
    assert memory_bytes(_write(tmp_path / "root", files)) == 8 * GIB


def test_machines_without_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert core_count(tmp_path) == 6
    assert memory_bytes(tmp_path) == 6 * DEFAULT_MEMORY_BYTES
    template = device("cpu")
    assert local_core(template, tmp_path) == template


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "flop"),
    [
        ("AuthenticAMD", 25, {"avx2", "fma", "avx512f"}, 32),
        ("AuthenticAMD", 26, {"avx2", "fma", "avx512f"}, 64),
        ("GenuineIntel", 6, {"avx2", "fma", "avx512f"}, 64),
        ("GenuineIntel", 6, {"avx", "avx2", "fma"}, 32),
        ("GenuineIntel", 6, {"avx"}, 16),
        ("", 0, {"asimd"}, 16),
        ("GenuineIntel", 6, {"sse2"}, 8),
    ],
)
def test_flops_a_clock_follow_the_vector_units(
    vendor: str, family: int, flags: set[str], flop: int
) -> None:
    found = Processor(vendor=vendor, family=family, flags=frozenset(flags))
    assert flops_per_clock(found)[0] == flop


def test_clock_prefers_what_does_not_change(tmp_path: Path) -> None:
    named = Processor(model="Intel(R) Xeon(R) CPU @ 2.00GHz", bogomips=3999.9, clock_mhz=3100)
    assert clock_hz(named, tmp_path)[0] == pytest.approx(2.8e9)
    arm = Processor(bogomips=50.0, clock_mhz=0)
    assert clock_hz(arm, tmp_path)[0] == 2.5e9
    told = _write(tmp_path, {"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3700000\n"})
    assert clock_hz(named, told)[0] == 3.7e9


def test_a_core_of_this_machine(tmp_path: Path) -> None:
    root = _write(tmp_path, {**MEMINFO, "proc/cpuinfo": ZEN4})
    found = local_core(device("cpu"), root)
    # Two threads share a core's 32 FLOP a clock at 2.6 GHz base and turbo.
    assert found.peak_flops_per_s["fp32"] == pytest.approx(32 * 2.6e9 * 1.4 / 2)
    assert found.peak_flops_per_s["bf16"] == 2 * found.peak_flops_per_s["fp32"]
    assert found.capacity_bytes == 2 * GIB
    assert found.l2_bytes == 1024**2
    assert found.sources["peak_flops_per_s.fp32"].startswith("assumed")
    assert set(found.sources) >= set(device("cpu").sources)


def test_processor_of_a_strange_file(tmp_path: Path) -> None:
    root = _write(tmp_path, {"proc/cpuinfo": "no colon here\ncpu cores : zero\nbogomips : x\n"})
    assert processor(root).flags == frozenset()


def test_cpu_is_in_the_catalogue_as_one_core() -> None:
    assert read_table("devices")["cpu"]["sm_count"][0] == 1
    assert device("cpu").dtypes == ("fp32", "bf16")
