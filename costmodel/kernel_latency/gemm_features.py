"""Features of learned matrix product prices: sizes, roofline, tiles, device.

The trees predict log(measured seconds / roofline seconds): effects that :mod:`roofline` leaves out,
as last-level cache hits, uneven waves, latency of short sums.
"""

from __future__ import annotations

import math

from ...datasets.catalogue.device import Device
from ...spec.report.work_items import Kernel
from .device_features import device_features
from .roofline import kernel_seconds, tiling

OPERAND_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
"""Bytes per operand value; nvfp4 has a scale of one byte for 16 values. Results are 2 bytes."""
RESULT_BYTES = 2.0
SQUARE, WIDE = (128, 128), (128, 256)
"""Tiles whose waves are features, whatever tile the roofline picks."""
NAMES = (
    *("log_m", "log_n", "log_k", "log_math_s", "log_memory_s", "log_intensity", "log_roofline_s"),
    *("log_waves", "wave_share", "tile", "log_flops", "log_bytes_over_l2", "log_result_over_l2"),
    *("log_aspect", "log_least", "log_square_waves", "square_wave_share", "wide_wave_share"),
    *("log_result_over_k", "operand_bytes", "asynchronous", "log_peak", "log_bandwidth"),
    *("log_balance", "ceiling"),
)


def gemm(m: int, k: int, n: int, dtype: str) -> Kernel:
    """The product (m, k) x (k, n), each operand moved once."""
    traffic = OPERAND_BYTES[dtype] * (m * k + k * n) + RESULT_BYTES * m * n
    return Kernel("matmul", (m, k, n), dtype, 2 * m * k * n, round(traffic))


def gemm_features(kernel: Kernel, device: Device) -> tuple[float, ...]:
    """The values named by :data:`NAMES`."""
    m, k, n = kernel.shape
    cut = tiling(1, m, k, n, kernel.dtype, device)
    rates = device_features(device, kernel.dtype)
    bandwidth = device.memory_bandwidth_bytes_per_s * device.memory_ceiling
    memory_s = kernel.traffic_bytes / bandwidth
    waves, square, wide = (
        tiles / device.sm_count for tiles in (cut.tiles, _tiles(m, n, SQUARE), _tiles(m, n, WIDE))
    )
    return (
        math.log(m),
        math.log(n),
        math.log(k),
        math.log(cut.seconds),
        math.log(memory_s),
        math.log(cut.seconds / memory_s),
        math.log(kernel_seconds(kernel, device)),
        math.log(waves),
        waves / math.ceil(waves),
        cut.number,
        math.log(kernel.flops),
        math.log(kernel.traffic_bytes / device.l2_bytes),
        math.log(RESULT_BYTES * m * n / device.l2_bytes),
        math.log(m / n),
        math.log(min(m, n, k)),
        math.log(square),
        square / math.ceil(square),
        wide / math.ceil(wide),
        math.log(m * n / k),
        OPERAND_BYTES[kernel.dtype],
        rates.asynchronous,
        rates.log_peak,
        rates.log_bandwidth,
        rates.log_balance,
        rates.ceiling,
    )


def _tiles(m: int, n: int, tile: tuple[int, int]) -> int:
    return math.ceil(m / tile[0]) * math.ceil(n / tile[1])
