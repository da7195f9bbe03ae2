"""What a learned price of a matrix product looks at: sizes, roofline, tiles and device.

The trees predict log(measured seconds / roofline seconds), so they learn what the roofline of
:mod:`..roofline` leaves out: kernels that fit the last-level cache, uneven waves of tiles,
latency of short sums. A device counts through its rates alone, so a device that no table covers
is one more point between those that are.
"""

from __future__ import annotations

import math

from ...datasets.catalogue.device import Device
from ...spec.kernels import Kernel
from ..roofline import kernel_seconds, peak_flops_per_s, tiling

OPERAND_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
"""Of a value that is read; nvfp4 has a scale of one byte for 16 values. Results are 2 bytes."""
RESULT_BYTES = 2.0
ASYNCHRONOUS = frozenset({"H100", "H800", "H200", "GH200", "B200", "B300", "GB200", "GB300"})
"""Families whose tensor cores take operands from shared memory on their own (wgmma of compute
capability 9.0, tcgen05 of 10.x: PTX ISA 8.7, section 9.7); the others multiply registers."""
SQUARE, WIDE = (128, 128), (128, 256)
"""Tiles whose waves are features whatever tile the roofline likes best."""
NAMES = (
    *("log_m", "log_n", "log_k", "log_math_s", "log_memory_s", "log_intensity", "log_roofline_s"),
    *("log_waves", "wave_share", "tile", "log_flops", "log_bytes_over_l2", "log_result_over_l2"),
    *("log_aspect", "log_least", "log_square_waves", "square_wave_share", "wide_wave_share"),
    *("log_result_over_k", "operand_bytes", "asynchronous", "log_peak", "log_bandwidth"),
    *("log_balance", "ceiling"),
)


def gemm(m: int, k: int, n: int, dtype: str) -> Kernel:
    """The product (m, k) x (k, n), each operand read and the result written once."""
    traffic = OPERAND_BYTES[dtype] * (m * k + k * n) + RESULT_BYTES * m * n
    return Kernel("matmul", (m, k, n), dtype, 2 * m * k * n, round(traffic))


def gemm_features(kernel: Kernel, device: Device) -> tuple[float, ...]:
    """The values named by :data:`NAMES`."""
    m, k, n = kernel.shape
    cut = tiling(1, m, k, n, kernel.dtype, device)
    bandwidth = device.memory_bandwidth_bytes_per_s
    memory_s = kernel.traffic_bytes / (bandwidth * device.memory_ceiling)
    peak = peak_flops_per_s(device, kernel.dtype)
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
        float(device.family in ASYNCHRONOUS),
        math.log(peak),
        math.log(bandwidth),
        math.log(peak * device.matmul_ceiling / bandwidth),
        device.matmul_ceiling,
    )


def _tiles(m: int, n: int, tile: tuple[int, int]) -> int:
    return math.ceil(m / tile[0]) * math.ceil(n / tile[1])
