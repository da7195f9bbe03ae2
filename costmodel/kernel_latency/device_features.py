"""Features of the device, common to all learned kernel prices.

A device counts through its rates alone, so an unmeasured one lies between the measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.catalogue.device import CAPABILITY_9_OR_10, Device
from .roofline import peak_flops_per_s


class DeviceFeatures(NamedTuple):
    """Rates of a device in one format; logarithms except first and last.

    ``asynchronous`` is 1 where tensor cores take operands from shared memory on their own (wgmma of
    compute capability 9.0, tcgen05 of 10.x: PTX ISA 8.7, section 9.7), and 0 where they multiply
    registers. ``log_balance``: the products' rate over the bandwidth.
    """

    asynchronous: float
    log_bandwidth: float
    log_peak: float
    log_balance: float
    ceiling: float


def device_features(device: Device, dtype: str) -> DeviceFeatures:
    """The rates of ``device`` for products in ``dtype``."""
    peak, bandwidth = peak_flops_per_s(device, dtype), device.memory_bandwidth_bytes_per_s
    return DeviceFeatures(
        asynchronous=float(device.family in CAPABILITY_9_OR_10),
        log_bandwidth=math.log(bandwidth),
        log_peak=math.log(peak),
        log_balance=math.log(peak * device.matmul_ceiling / bandwidth),
        ceiling=device.matmul_ceiling,
    )
