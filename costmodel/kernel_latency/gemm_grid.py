"""Seconds of matrix products on one device, measured or learned.

Measured: the device's bundled grid, interpolated. On a device without one, trees fitted to all
grids predict the ratio to the roofline on a coarser grid. Beyond the largest sizes time grows with
the work, below the smallest it stays. A product that moves more than its operands and a 16-bit
result takes longer by the rooflines' ratio.

Times are as measured, and a larger product may take less: at a few sizes of up to 50 us a library
picks a better kernel (4 % of all pairs in which every side doubles, on L40S down to a fifth of the
time), from 50 us on at none, on any device. Forcing seconds to rise would turn 3.5 % mean error of
held-out sizes into 12 %.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import timed_grid
from ...spec.report.work_items import Kernel
from ..arrays import Floats
from .forest import Forest
from .gemm_features import gemm, gemm_features
from .log_grid import LogGrid, filled
from .roofline import kernel_seconds
from .shipped_forests import shipped_forest

MEASURED_AS = {"fp16": "bf16"}
"""Formats whose products run at the rate of another's."""
TREES_OF = {"bf16": "gemm_bf16", "fp16": "gemm_bf16", "fp8": "gemm_narrow", "nvfp4": "gemm_narrow"}
"""The bundled forest of each format."""


class GemmGrid:
    """Seconds of products (m, k) x (k, n) in one format.

    Args:
        owner: device of the grid.
        dtype: of the operands, one of the grids'.
        grid: log seconds over (m, n, k).
    """

    def __init__(self, owner: Device, dtype: str, grid: LogGrid) -> None:
        self._owner, self._dtype, self._grid = owner, dtype, grid

    def seconds(self, kernel: Kernel, on: Device) -> float:
        """Seconds on the grid's device or another of the same chip."""
        m, k, n = kernel.shape
        log_s, inside = self._grid.at((m, n, k))
        beyond = math.prod(max(1.0, x / y) for x, y in zip((m, n, k), inside, strict=True))
        standard = gemm(m, k, n, self._dtype)
        ratio = kernel_seconds(kernel, on) / kernel_seconds(standard, self._owner)
        return math.exp(log_s) * beyond * ratio


@cache
def measured_gemm_grid(name: str, dtype: str) -> GemmGrid | None:
    """The grid measured on the named device, or None."""
    dtype = MEASURED_AS.get(dtype, dtype)
    timings = timed_grid("gemm")
    times = timings.table(name, dtype)
    if times is None:
        return None
    m, n, k = (np.log(np.array(timings.axes[name])) for name in ("m", "n", "k"))
    log_flops = m[:, None, None] + n[None, :, None] + k[None, None, :]
    log_s = filled(np.log(times, dtype=np.float64), log_flops)
    return GemmGrid(device(name), dtype, LogGrid(list(timings.axes.values()), log_s))


@cache
def learned_gemm_grid(name: str, dtype: str) -> GemmGrid | None:
    """Grid predicted by the bundled trees; None for an unmeasured format."""
    on = device(name)
    if dtype not in TREES_OF or dtype not in on.peak_flops_per_s:
        return None
    axes = [axis[::2] for axis in timed_grid("gemm").axes.values()]
    log_s = learned_gemm_times(on, dtype, axes, shipped_forest(TREES_OF[dtype]))
    return GemmGrid(on, dtype, LogGrid(axes, log_s))


def learned_gemm_times(
    on: Device, dtype: str, axes: list[tuple[int, ...]], forest: Forest
) -> Floats:
    """Log seconds over (m, n, k) predicted by ``forest``."""
    kernels = [gemm(m, k, n, dtype) for m, n, k in product(*axes)]
    rows = np.array([gemm_features(kernel, on) for kernel in kernels], dtype=np.float32)
    base = np.log([kernel_seconds(kernel, on) for kernel in kernels])
    return np.reshape(base + forest.at(rows), [len(axis) for axis in axes])
