"""Devices: peak rates of an accelerator or core, and reachable fractions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...spec.errors import InputError, nearest_name
from .device_names import devices_called, name_parts
from .local import (
    ASSUMED,
    CORE_BANDWIDTH_BYTES_PER_S,
    MACHINE_BANDWIDTH_BYTES_PER_S,
    clock_hz,
    core_count,
    flops_per_clock,
    memory_bytes,
    processor,
)
from .tables import figure, read_table

CPU = "cpu"
FIGURES = (
    "flash_attention",
    "nominal_memory_bytes",
    "capacity_bytes",
    "memory_bandwidth_bytes_per_s",
    "matmul_ceiling",
    "memory_ceiling",
    "kernel_launch_s",
    "sm_count",
    "boost_clock_hz",
    "l2_bytes",
    "host_link_bytes_per_s",
)
CAPABILITY_9_OR_10 = frozenset({"H100", "H800", "H20", "H200", "B200", "B300", "GB200", "GB300"})
"""Families of compute capability 9.0 and 10.x (NVIDIA, CUDA C++ Programming Guide)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A catalogue device.

    ``capacity_bytes`` is available to processes, their contexts included, and less than
    ``nominal_memory_bytes``, the size in the name. ``peak_flops_per_s`` maps fp32, tf32, bf16,
    fp16, fp8 and nvfp4, as far as the device has them, to the dense rate, one multiply-add being
    two FLOPs. ``matmul_ceiling`` is the fraction of it that the best large matrix product reaches,
    ``memory_ceiling`` the fraction of the memory bandwidth that streaming reaches.
    ``kernel_launch_s`` is the least time of a kernel on the device; the host's time for a launch
    belongs to the stack. ``dtypes`` are the formats that training can compute in.
    ``sm_count`` counts streaming multiprocessors, or compute units. ``host_link_bytes_per_s`` is
    one direction of the bus to host and network adapters. ``sources`` holds the source of each
    figure. ``also_called`` are other names in use; ``note`` defines one device where that is no
    whole package.
    """

    name: str
    family: str
    form: str
    usual: bool
    dtypes: tuple[str, ...]
    flash_attention: bool
    nominal_memory_bytes: int
    capacity_bytes: int
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float] = field(hash=False)
    matmul_ceiling: float
    memory_ceiling: float
    kernel_launch_s: float
    sm_count: int
    boost_clock_hz: float
    l2_bytes: int
    host_link_bytes_per_s: float
    sources: Mapping[str, str] = field(hash=False)
    also_called: tuple[str, ...] = ()
    note: str = ""

    @property
    def memory_label(self) -> str:
        """The memory suffix of the name, such as ``80GB``.

        '' if it has none.
        """
        last = self.name.rsplit("-", 1)[-1]
        return last if last.endswith("GB") else ""


@cache
def devices() -> Mapping[str, Device]:
    """Every device by name, in catalogue order.

    ``cpu`` is a core of this machine.
    """
    table = {name: _device(name, row) for name, row in read_table("devices").items()}
    return {**table, CPU: local_core(table[CPU])}


def local_core(template: Device, root: Path = Path("/")) -> Device:
    """``template`` with the rates of this machine's cores, where known.

    Args:
        template: the catalogue's ``cpu``.
        root: where ``proc`` and ``sys`` are mounted (for tests).
    """
    core, cores = processor(root), core_count(root)
    if not core.flags:
        return template
    per_clock, unit = flops_per_clock(core)
    hertz, clock = clock_hz(core, root)
    threads = core.threads_per_core
    fp32 = per_clock * hertz / threads
    bf16 = fp32 * (2 if "avx512_bf16" in core.flags else 1)
    least, most = CORE_BANDWIDTH_BYTES_PER_S
    bandwidth = max(least, min(most, MACHINE_BANDWIDTH_BYTES_PER_S / cores))
    rate_source = (
        ASSUMED + f"{unit}, {clock}" + (f", {threads} threads a core" if threads > 1 else "")
    )
    bandwidth_source = ASSUMED + f"51.2 GB/s over {cores} cores, within 4 to 28 GB/s a core"
    memory = memory_bytes(root) // cores
    memory_source = "/proc/meminfo and control group limits, divided by the cores"
    sources = {
        **template.sources,
        "peak_flops_per_s.fp32": rate_source,
        "peak_flops_per_s.bf16": rate_source + (", AVX512-BF16" if bf16 > fp32 else ", as fp32"),
        "boost_clock_hz": ASSUMED + clock,
        "memory_bandwidth_bytes_per_s": bandwidth_source,
        "host_link_bytes_per_s": bandwidth_source,
        "nominal_memory_bytes": memory_source,
        "capacity_bytes": memory_source,
    }
    if core.cache_bytes:
        sources["l2_bytes"] = "/proc/cpuinfo, cache size"
    return replace(
        template,
        peak_flops_per_s={"fp32": fp32, "bf16": bf16},
        boost_clock_hz=hertz,
        memory_bandwidth_bytes_per_s=bandwidth,
        host_link_bytes_per_s=bandwidth,
        nominal_memory_bytes=memory,
        capacity_bytes=memory,
        l2_bytes=core.cache_bytes or template.l2_bytes,
        sources=sources,
    )


def _device(name: str, row: Mapping[str, Any]) -> Device:
    sources: dict[str, str] = {}
    values = {key: figure(row, key, sources) for key in FIGURES}
    peaks: dict[str, str] = {}
    rates = {
        dtype: figure(row["peak_flops_per_s"], dtype, peaks) for dtype in row["peak_flops_per_s"]
    }
    sources |= {f"peak_flops_per_s.{dtype}": source for dtype, source in peaks.items()}
    return Device(
        name=name,
        family=row["family"],
        form=row["form"],
        usual=row["usual"],
        dtypes=tuple(row["dtypes"]),
        peak_flops_per_s=rates,
        sources=sources,
        also_called=tuple(row.get("also_called", ())),
        note=row.get("note", ""),
        **values,
    )


def device(name: str, where: str = "device") -> Device:
    """The device that ``name`` means, upper and lower case alike.

    A form left out is SXM if the device has it; a memory size left out is the catalogue's usual
    one: ``H100`` and ``H100-80G`` are H100-SXM-80GB, ``A100-PCIE`` is A100-PCIE-80GB, ``4090`` is
    RTX-4090-24GB.

    Raises:
        InputError: no such device; the nearest names are given.
    """
    if (exact := devices().get(name)) is not None:
        return exact
    candidates = devices_called(name, devices().values())
    if not candidates:
        allowed = "a device of the catalogue: " + ", ".join(devices())
        near = nearest_name(name, [*devices(), *_short_names()])
        raise InputError(where, name, allowed, near)
    options = name_parts(name)
    return min(candidates, key=lambda d: (d.form not in options and d.form != "SXM", not d.usual))


def _short_names() -> list[str]:
    shorts = [d.family for d in devices().values()]
    shorts += [f"{d.family}-{d.memory_label}" for d in devices().values() if d.memory_label]
    shorts += [alias for d in devices().values() for alias in d.also_called]
    return list(dict.fromkeys(shorts))
