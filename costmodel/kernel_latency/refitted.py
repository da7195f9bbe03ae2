"""Prices of a machine refitted to the programs that were timed on it.

The shipped price (measured elsewhere, learned or a roofline) times what a kernel ridge regression
(:mod:`programs.kernel_ridge`) says of the timed programs near it. Fitted by
:mod:`calibration.profile_residual`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ...datasets.catalogue.device import Device, device
from ...spec.cluster.learned_residual import KernelGroup, LearnedResidual
from ...spec.report.work_items import ATTENTIONS, FUSED, MATMULS, SCANS, Kernel
from ..programs.kernel_ridge import KernelRidge
from ..programs.kernels import passes_of
from .device_latency import DeviceLatency
from .profile_table import Latency
from .roofline import kernel_seconds

GROUPS: tuple[KernelGroup, ...] = ("product", "attention", "scan", "pass")
SIDES = 4
"""Sizes of a shape that are features: the last ones, which all kernels of a group have."""
FLASH_GENERATION = 3
MOST_KEPT = 100_000
"""Most kernels whose prices a process keeps."""


def group_of(kernel: Kernel) -> KernelGroup:
    """The kernels that it is priced alike with."""
    if kernel.op in MATMULS or kernel.op in FUSED:
        return "product"
    if kernel.op in ATTENTIONS:
        return "attention"
    return "scan" if kernel.op in SCANS else "pass"


def kernel_features(kernel: Kernel, shipped_s: float) -> tuple[float, ...]:
    """Logs of price, work, bytes and sides, the group, and what its passes do."""
    passes = () if group_of(kernel) != "pass" else passes_of(kernel.op)
    sides = [math.log(side) for side in kernel.shape[-SIDES:] if side > 0]
    return (
        math.log(shipped_s),
        math.log1p(kernel.flops),
        math.log1p(kernel.traffic_bytes),
        math.log1p(kernel.traffic_bytes / max(1, math.prod(kernel.shape))),
        *([0.0] * (SIDES - len(sides))),
        *sides,
        *(float(group_of(kernel) == group) for group in GROUPS),
        float(kernel.op.endswith("_backward")),
        float(sum(x.reduces for x in passes)),
        float(len(passes)),
        math.log1p(sum(sum(x.operations) for x in passes)),
    )


class ShippedPrices:
    """Prices of a device as they are without any profile, in seconds."""

    def __init__(self, on: Device) -> None:
        self._device, self._latency = on, DeviceLatency(on, FLASH_GENERATION)

    def seconds(self, kernel: Kernel) -> float:
        """Seconds of a kernel alone."""
        latency = self._latency.price(kernel)
        if latency is None:
            return kernel_seconds(kernel, self._device, FLASH_GENERATION)
        return latency.time_s


@lru_cache(maxsize=8)
def refitted_prices(residual: LearnedResidual, device_name: str) -> RefittedPrices:
    """The prices of a residual; each kernel is priced once a process."""
    return RefittedPrices(residual, device(device_name))


class RefittedPrices:
    """Prices of kernels by a machine's residual."""

    def __init__(self, residual: LearnedResidual, on: Device) -> None:
        self._residual, self._shipped = residual, ShippedPrices(on)
        self._latencies: dict[Kernel, Latency] = {}
        self._center, self._scale = np.array(residual.center), np.array(residual.scale)
        points, weights = np.array(residual.points), np.array(residual.weights)
        self._ridge = KernelRidge(points, weights, residual.mean, residual.width)

    def covers(self, kernel: Kernel) -> bool:
        """True if programs of its kind were timed."""
        return group_of(kernel) in self._residual.groups

    def leads(self, kernel: Kernel) -> bool:
        """True if it errs less on left out programs than interpolation does."""
        return group_of(kernel) in self._residual.prices

    def latency(self, kernel: Kernel) -> Latency:
        """Seconds of a kernel alone."""
        if kernel not in self._latencies:
            if len(self._latencies) >= MOST_KEPT:
                self._latencies.clear()
            self._latencies[kernel] = self._predicted(kernel)
        return self._latencies[kernel]

    def _predicted(self, kernel: Kernel) -> Latency:
        shipped_s = self._shipped.seconds(kernel)
        row = (np.array([kernel_features(kernel, shipped_s)]) - self._center) / self._scale
        return Latency(shipped_s * math.exp(float(self._ridge.at(row)[0])), "learned")
