"""Kernel seconds measured on a catalogue device, or on devices like it.

In order: measured on the device (interpolated); measured on one with the same chip, times the
rooflines' ratio; predicted by trees fitted to all devices; else None, for the roofline.
"""

from __future__ import annotations

import math

import numpy as np

from ...datasets.catalogue.device import Device
from ...datasets.measured.timed_grid import timed_grid
from ...spec.report.work_items import FLASH, FUSED, FUSED_GATED, Kernel
from ..programs.leaf_trees import untimed_attention_grid
from .attention_grid import DTYPES, measured_attention_grid
from .experts_features import FusedExperts, base_seconds, experts_features
from .gemm_features import OPERAND_BYTES
from .gemm_grid import learned_gemm_grid, measured_gemm_grid
from .profile_table import Latency, Source
from .shipped_forests import shipped_forest

SAME_CHIP = {
    "A100-SXM-40GB": "A100-SXM-80GB",
    "A800-SXM-80GB": "A100-SXM-80GB",
    "H800-SXM-80GB": "H100-SXM-80GB",
    "B300-SXM-270GB": "GB300-279GB",
}
"""Unmeasured devices, with the measured one of the same chip."""
UNCOVERED_PREFIXES = ("MI",)
"""Families that the fitted devices, all of NVIDIA, do not cover."""


class DeviceLatency:
    """Price kernels on one device."""

    def __init__(self, on: Device, flash_generation: int) -> None:
        self._device, self._generation = on, flash_generation
        self._measured = SAME_CHIP.get(on.name, on.name)
        self._learns = on.sm_count > 1 and not on.family.startswith(UNCOVERED_PREFIXES)

    def price(self, kernel: Kernel) -> Latency | None:
        """Seconds of ``kernel`` alone; None if nothing comparable was measured."""
        if kernel.op == "matmul":
            return self._gemm(kernel)
        if kernel.op in (FLASH, f"{FLASH}_backward") and kernel.dtype in DTYPES:
            return self._attention(kernel)
        if kernel.op in FUSED and self._learns:
            return self._experts(kernel)
        return None

    @property
    def learns(self) -> bool:
        """True if trees price it: similar devices were measured, not its chip."""
        return self._learns and not self._timed

    @property
    def basis(self) -> Source:
        """Best source of its kernels: its chip measured, learned from others, or data sheets."""
        if self._timed:
            return "measured"
        return "learned" if self._learns else "analytic"

    @property
    def rests_on(self) -> str:
        """Sources of the prices of products and flash attention, in words."""
        grid = timed_grid("gemm")
        if self._timed:
            if self._source == "measured":
                return f"measured on {self._measured}: {grid.source}"
            chip = f"measured on {self._measured}, the same chip, times the rooflines' ratio"
            return f"learned: {chip}"
        if not self._learns:
            return "nothing is learned: no device like it was measured"
        devices = len({name for name, _ in grid.tables})
        return f"learned: trees fitted to {devices} devices, scored on devices kept back"

    @property
    def _timed(self) -> bool:
        return timed_grid("gemm").table(self._measured, "bf16") is not None

    @property
    def _source(self) -> Source:
        return "measured" if self._measured == self._device.name else "learned"

    def _gemm(self, kernel: Kernel) -> Latency | None:
        source, grid = self._source, measured_gemm_grid(self._measured, kernel.dtype)
        if grid is None and self._learns:
            source, grid = "learned", learned_gemm_grid(self._device.name, kernel.dtype)
        if grid is None:
            return None
        return Latency(grid.seconds(kernel, self._device), source)

    def _attention(self, kernel: Kernel) -> Latency | None:
        source, grid = self._source, measured_attention_grid(self._measured)
        if grid is None and self._learns:
            source, grid = "learned", untimed_attention_grid(self._device.name)
        if grid is None:
            return None
        return Latency(grid.seconds(kernel, self._device, self._generation), source)

    def _experts(self, kernel: Kernel) -> Latency | None:
        if kernel.dtype not in self._device.peak_flops_per_s or kernel.dtype not in OPERAND_BYTES:
            return None
        tokens, hidden, ffn, topk, experts, tp, ep = kernel.shape
        gated = kernel.op == FUSED_GATED
        layer = FusedExperts(tokens, hidden, ffn, topk, experts, tp, ep, gated, False, kernel.dtype)
        row = np.array([experts_features(layer, self._device)], dtype=np.float32)
        ratio = math.exp(float(shipped_forest("experts").at(row)[0]))
        return Latency(base_seconds(layer, self._device) * ratio, "learned")
