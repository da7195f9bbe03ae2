"""A device as a vector of the catalogue's figures, log-scaled."""

from __future__ import annotations

import math

from ...datasets.catalogue.device import CAPABILITY_9_OR_10, Device
from ..kernel_latency.roofline import peak_flops_per_s

NAMES = (
    *("clock", "memory", "l2", "bandwidth", "peak", "units", "launch", "ceiling"),
    *("balance", "asynchronous"),
)


def device_vector(on: Device, dtype: str) -> tuple[float, ...]:
    """The values named by :data:`NAMES`, near one, for products in ``dtype``."""
    peak, bandwidth = peak_flops_per_s(on, dtype), on.memory_bandwidth_bytes_per_s
    return (
        math.log(on.boost_clock_hz / 1e9),
        math.log(on.nominal_memory_bytes / 64e9),
        math.log(on.l2_bytes / 50e6),
        math.log(bandwidth / 2e12),
        math.log(peak / 500e12),
        math.log(on.sm_count / 128),
        math.log(on.kernel_launch_s / 2.5e-6),
        on.matmul_ceiling,
        math.log(peak * on.matmul_ceiling / bandwidth / 200),
        float(on.family in CAPABILITY_9_OR_10),
    )
