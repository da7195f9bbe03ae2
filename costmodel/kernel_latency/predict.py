"""Seconds of kernels on a catalogue device, with interval and source.

    predict(kernels, "H100-SXM-80GB") -> one Prediction a kernel

A price is :class:`device_latency.DeviceLatency`'s, else the roofline's. Its 80 % interval is a
factor either way, the 80 % quantile of errors on held-out rows
(``benchmarks/items/costmodel/kernels.py``, 2026-11):

- measured: between sizes measured on the device, products 5 %, attention 9 %;
- learned: on held-out devices, products 25 %, attention 19 %; experts of held-out models 23 %;
- analytic: nothing of the kind was measured on accelerators, and 50 % is assumed.

Worked number: a product of 4096 x 4096 x 4096 in bf16 took 176 us on H100: 168 to 185 us.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...datasets.catalogue.device import Device, device
from ...spec.errors import InputError
from ...spec.report.work_items import ATTENTIONS, FUSED, Kernel
from .device_latency import DeviceLatency
from .profile_table import Source
from .roofline import kernel_seconds

MEASURED = {"products": 0.05, "attention": 0.09}
LEARNED = {"products": 0.25, "attention": 0.19, "experts": 0.23}
ANALYTIC = 0.5


class KernelPrediction(NamedTuple):
    """Seconds of a kernel alone, with 80 % interval and source."""

    time_s: float
    interval_s: tuple[float, float]
    source: Source


def predict(
    kernels: Iterable[Kernel], device_name: str, flash_generation: int = 3
) -> tuple[KernelPrediction, ...]:
    """Seconds of each kernel when nothing else runs.

    Args:
        kernels: shapes as in :class:`work_items.Kernel`; experts of a whole layer are
            ``fused_experts`` or ``fused_experts_ungated``.
        device_name: catalogue name.
        flash_generation: of the flash kernels, see :class:`stack_spec.StackSpec`.

    Raises:
        InputError: no such device, or fused experts on one without learned prices.
    """
    on = device(device_name)
    latency = DeviceLatency(on, flash_generation)
    return tuple(_prediction(kernel, latency, on, flash_generation) for kernel in kernels)


def _prediction(
    kernel: Kernel, latency: DeviceLatency, on: Device, generation: int
) -> KernelPrediction:
    measured = latency.price(kernel)
    if measured is not None:
        return _around(measured.time_s, _half_width(kernel, measured.source), measured.source)
    if kernel.op in FUSED:
        allowed = "a device and a type that experts were measured on, or one like it"
        raise InputError("kernel", f"{kernel.op} in {kernel.dtype} on {on.name}", allowed)
    time_s = kernel_seconds(kernel, on, generation)
    return _around(time_s, ANALYTIC, "analytic")


def _half_width(kernel: Kernel, source: Source) -> float:
    kind = "products"
    if kernel.op in FUSED:
        kind = "experts"
    elif kernel.op in ATTENTIONS:
        kind = "attention"
    return (MEASURED if source == "measured" else LEARNED)[kind]


def _around(time_s: float, half_width: float, source: Source) -> KernelPrediction:
    return KernelPrediction(time_s, (time_s / (1 + half_width), time_s * (1 + half_width)), source)
