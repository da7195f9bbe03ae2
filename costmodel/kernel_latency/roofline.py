"""Analytic kernel time: launch, arithmetic with size-dependent efficiency, memory traffic.

A kernel takes ``launch + max(T_math, T_mem) + OVERLAP_LOSS · min(T_math, T_mem)``.

Matrix products cut the result into tiles; they run in ceil(``tiles / SMs``) waves, so a badly
filled last wave is wasted (wave quantization), and each pays a fixed prologue, so short sums (small
k) are less efficient:

    T_math = min over tile shapes of
             ceil(tiles / SMs) · (2·tm·tn·k / (peak·ceiling / SMs) + prologue)

Worked number: A100, bf16, m = 2048, n = 4608, k = 12288: 16 x 18 tiles of 128 x 256 on 108 SMs are
3 waves of 0.84 ms ... 0.93 ms in all, 0.80 of peak.

A grouped product (experts) runs the same tiles: those of all groups fill the waves together.

The three constants were fitted once, to bf16 products with every side >= 256 on A100, H100, H200
and B200 (``datasets``: aiconfigurator-core gemm table); mean error over those 11,520 shapes 9 %, 6
to 8 % where every side is >= 1024. Attention and elementwise kernels use the same form without
tiles; attention skips scores hidden by its mask.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.catalogue.device import Device
from ...spec.report.work_items import ATTENTIONS, GROUPED, SCANS, Kernel, computed_fraction
from . import flash_efficiency, stragglers
from .flash_efficiency import flash_share

TILES = ((256, 128), (128, 256), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64))
WAVE_PROLOGUE_S = 0.58e-6
SMALL_TILE_EXPONENT = 0.02
OVERLAP_LOSS = 0.15
SCAN_CEILING = 0.13
"""Fraction of the matrix-product ceiling that chunked scans reach: many small, dependent
products. Set by hand to the 1,248 forward scans of the gated delta rule of 131,072 or more
tokens times heads that aiconfigurator-core 0.12.0 (gdn_perf, TensorRT-LLM 1.3.0rc20, the
Triton kernels of flash-linear-attention) measured: mean error 7 % on H100, 10 % on H200 and
on L40S, but 44 % too fast on B200. Assumed for backward scans and for state spaces, which it
does not measure; other kernels differ (vLLM 0.24 with FlashInfer on H100 is four times as
fast).
"""


class FormulaConstant(NamedTuple):
    """A constant of the formulas: its measurement, and the measured device families."""

    name: str
    value: float
    measured: str
    families: tuple[str, ...]

    def source(self, device: Device) -> str:
        """Source for a device: assumed outside the measured families."""
        if device.family in self.families:
            return f"measured: {self.measured}"
        return f"assumed: as on {', '.join(self.families)}; {self.measured}"


def formula_constants(
    device: Device, flash: int | None, scans: bool
) -> tuple[FormulaConstant, ...]:
    """Constants behind analytic prices of kernels on ``device``.

    ``flash``: generation of the flash kernels, None if unused; ``scans``: with chunked scans.
    """
    gemm = "fitted to 11,520 bf16 products of the aiconfigurator-core gemm table"
    fitted = ("A100", "H100", "H200", "B200")
    constants = [FormulaConstant("overlap_loss", OVERLAP_LOSS, gemm, fitted)]
    if device.sm_count > 1:
        constants.append(FormulaConstant("wave_prologue_s", WAVE_PROLOGUE_S, gemm, fitted))
        constants.append(FormulaConstant("small_tile_exponent", SMALL_TILE_EXPONENT, gemm, fitted))
        measured = stragglers
        constants.append(
            FormulaConstant(
                "device_range", measured.SPEED_VARIATION, measured.PRINTED, measured.FAMILIES
            )
        )
    if flash is not None:
        constants += _flash_figures(device, flash)
    if scans:
        gdn = "forward scans of the gated delta rule, aiconfigurator-core 0.12.0 gdn_perf"
        families = ("H100", "H200", "L40S")
        constants.append(FormulaConstant("scan_ceiling", SCAN_CEILING, gdn, families))
    return tuple(constants)


def _flash_figures(device: Device, generation: int) -> list[FormulaConstant]:
    """Constants behind prices of flash attention on ``device``."""
    families, printed = tuple(flash_efficiency.CAUSAL), flash_efficiency.PRINTED
    causal = flash_efficiency.CAUSAL.get(device.family)
    constants = [
        FormulaConstant("flash_backward", flash_efficiency.BACKWARD, printed, ("A100",)),
        FormulaConstant(
            "flash_half_tokens", flash_efficiency.HALF_TOKENS, flash_efficiency.MEASURED, families
        ),
    ]
    if causal is None:
        ceiling = FormulaConstant("flash_ceiling", flash_efficiency.UNMEASURED, printed, ("A100",))
    else:
        ceiling = FormulaConstant("flash_ceiling", causal, flash_efficiency.MEASURED, families)
    constants.append(ceiling)
    if generation == 2 and device.family in flash_efficiency.HOPPER:
        share, source = flash_efficiency.SECOND_ON_HOPPER, flash_efficiency.PRINTED_3
        constants.append(FormulaConstant("flash_2_on_hopper", share, source, ("H100",)))
    return constants


def peak_flops_per_s(device: Device, dtype: str) -> float:
    """Dense matrix rate of the device for a compute format."""
    return device.peak_flops_per_s.get(dtype, device.peak_flops_per_s["fp32"])


def kernel_seconds(kernel: Kernel, device: Device, flash_generation: int = 3) -> float:
    """Seconds of one kernel on ``device`` by the module's formula."""
    math_s = _math_seconds(kernel, device, flash_generation)
    rate = device.memory_bandwidth_bytes_per_s * device.memory_ceiling
    memory_s = kernel.traffic_bytes / rate
    slower, faster = max(math_s, memory_s), min(math_s, memory_s)
    return device.kernel_launch_s + slower + OVERLAP_LOSS * faster


def _math_seconds(kernel: Kernel, device: Device, flash_generation: int) -> float:
    if kernel.op == "matmul":
        m, k, n = kernel.shape
        return _tiled_seconds(1, m, k, n, kernel.dtype, device)
    if kernel.op == "batched_matmul":
        batch, m, k, n = kernel.shape
        return _tiled_seconds(batch, m, k, n, kernel.dtype, device)
    if kernel.op in GROUPED:
        return _grouped_seconds(kernel, device)
    if kernel.op in ATTENTIONS:
        share = flash_share(kernel.op, kernel.shape, device, flash_generation)
        rate = peak_flops_per_s(device, kernel.dtype) * device.matmul_ceiling * share
        return kernel.flops * computed_fraction(kernel.op, kernel.shape) / rate
    if kernel.op in SCANS:
        rate = peak_flops_per_s(device, kernel.dtype) * device.matmul_ceiling * SCAN_CEILING
        return kernel.flops / rate
    return 0.0


def _grouped_seconds(kernel: Kernel, device: Device) -> float:
    """One launch over the tiles of all groups, of equal rows."""
    groups, m, k, n = kernel.shape
    if kernel.op == "grouped_matmul":
        m = math.ceil(m / groups)
    else:
        k = math.ceil(k / groups)
    return _tiled_seconds(groups, m, k, n, kernel.dtype, device)


def _tiled_seconds(batch: int, m: int, k: int, n: int, dtype: str, device: Device) -> float:
    if device.sm_count == 1:
        rate = peak_flops_per_s(device, dtype) * device.matmul_ceiling
        return 2 * batch * m * k * n / rate
    return tiling(batch, m, k, n, dtype, device).seconds


class Tiling(NamedTuple):
    """The fastest tiling of a product: index in TILES, number of tiles."""

    seconds: float
    number: int
    tiles: int


def tiling(batch: int, m: int, k: int, n: int, dtype: str, device: Device) -> Tiling:
    """The arithmetically fastest tiling of ``batch`` products (m, k) x (k, n)."""
    rate = peak_flops_per_s(device, dtype) * device.matmul_ceiling
    units = device.sm_count
    best = Tiling(math.inf, 0, 0)
    for number, (tile_m, tile_n) in enumerate(TILES):
        tiles = batch * math.ceil(m / tile_m) * math.ceil(n / tile_n)
        intensity = (tile_m * tile_n / (tile_m + tile_n)) / 64
        efficiency = min(1.0, intensity**SMALL_TILE_EXPONENT)
        tile_s = 2 * tile_m * tile_n * k * units / (rate * efficiency) + WAVE_PROLOGUE_S
        seconds = math.ceil(tiles / units) * tile_s
        if seconds < best.seconds:
            best = Tiling(seconds, number, tiles)
    return best
