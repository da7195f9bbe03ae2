"""Features of learned fused expert prices: load, weights, tiles, roofline, device.

A fused kernel sorts rows by expert, applies each expert's gate and up projections, activation and
down projection, and sums the rows of each token. The base is two grouped products, tiles of all
experts sharing waves, beside the traffic of weights and rows: ``launch + max + 0.3 · min``. A
projection is padded to 64 values along the sum. Routing draws ``topk`` experts per token; a power
law leaves some without a row. The trees predict log(measured / base).

Symbols: a rank of ``ep`` holds ``experts / ep`` experts, a part ``ffn / tp`` of each, and gets
``tokens · topk / ep`` rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.catalogue.device import Device
from .device_features import device_features
from .gemm_features import OPERAND_BYTES
from .roofline import WAVE_PROLOGUE_S, peak_flops_per_s

TILES = ((128, 128), (128, 256), (64, 128), (64, 256), (64, 64), (32, 128), (16, 128))
LEAST_TILE_ROWS = 64
"""Least rows charged for a tile's arithmetic."""
PAD = 64
LAUNCH_S = 15e-6
"""Of the handful of kernels for sorting, multiplying and summing."""
OVERLAP_LOSS = 0.3
VALUE_BYTES = 2.0
NAMES = (
    *("gated", "pad_of_gate", "pad_of_down", "log_tokens", "log_local_experts", "uneven"),
    *("log_rows", "log_rows_of_expert", "log_experts_with_rows", "log_math_s", "log_memory_s"),
    *("log_intensity", "log_base_s", "log_flops", "log_weight_bytes", "log_row_bytes"),
    *("log_rows_over_weights", "log_waves_up", "log_waves_down", "wave_share_up"),
    *("wave_share_down", "log_tp", "log_ep", "log_token_values", "log_mean_rows"),
    *("operand_bytes", "asynchronous", "log_bandwidth", "log_peak", "log_balance", "ceiling"),
)


class FusedExperts(NamedTuple):
    """Forward of one rank's experts; sizes are the whole layer's."""

    tokens: int
    hidden: int
    ffn: int
    topk: int
    experts: int
    tp: int
    ep: int
    gated: bool
    uneven: bool
    dtype: str


class _ExpertsWork(NamedTuple):
    rows: float
    with_rows: float
    ffn: float
    up_s: float
    down_s: float
    up_waves: float
    down_waves: float
    flops: float
    weight_bytes: float
    row_bytes: float
    memory_s: float


def _work(layer: FusedExperts, device: Device) -> _ExpertsWork:
    local, ffn = layer.experts / layer.ep, layer.ffn / layer.tp
    rows = layer.tokens * layer.topk / layer.ep
    drawn = local * (1 - math.exp(-0.7 * rows / local)) if layer.uneven else min(local, rows)
    with_rows = max(1.0, min(drawn, local))
    width = (2 if layer.gated else 1) * ffn
    up_s, up_waves = _product(with_rows, rows, width, layer.hidden, layer.dtype, device)
    down_s, down_waves = _product(with_rows, rows, layer.hidden, ffn, layer.dtype, device)
    values = (width + ffn) * layer.hidden
    weight_bytes = OPERAND_BYTES[layer.dtype] * with_rows * values
    row_bytes = VALUE_BYTES * rows * (2 * layer.hidden + width + ffn)
    row_bytes += 2 * VALUE_BYTES * layer.tokens * layer.hidden
    bandwidth = device.memory_bandwidth_bytes_per_s * device.memory_ceiling
    return _ExpertsWork(
        rows=rows,
        with_rows=with_rows,
        ffn=ffn,
        up_s=up_s,
        down_s=down_s,
        up_waves=up_waves,
        down_waves=down_waves,
        flops=2 * rows * values,
        weight_bytes=weight_bytes,
        row_bytes=row_bytes,
        memory_s=(weight_bytes + row_bytes) / bandwidth,
    )


def _product(
    groups: float, rows: float, width: float, inner: float, dtype: str, device: Device
) -> tuple[float, float]:
    """Arithmetic seconds of a grouped product's best tiling, and its waves."""
    units, group_rows = device.sm_count, rows / groups
    rate = peak_flops_per_s(device, dtype) * device.matmul_ceiling
    best = (math.inf, 0.0)
    for tile_m, tile_n in TILES:
        waves = groups * math.ceil(group_rows / tile_m) * math.ceil(width / tile_n) / units
        padded = math.ceil(inner / PAD) * PAD
        tile_s = 2 * max(tile_m, LEAST_TILE_ROWS) * tile_n * padded * units / rate
        best = min(best, (math.ceil(waves) * (tile_s + WAVE_PROLOGUE_S), waves))
    return best


def base_seconds(layer: FusedExperts, device: Device) -> float:
    """Two grouped products beside their traffic."""
    return _base(_work(layer, device))


def _base(work: _ExpertsWork) -> float:
    math_s = work.up_s + work.down_s
    slower, faster = max(math_s, work.memory_s), min(math_s, work.memory_s)
    return LAUNCH_S + slower + OVERLAP_LOSS * faster


def experts_features(layer: FusedExperts, device: Device) -> tuple[float, ...]:
    """The values named by :data:`NAMES`."""
    work, local = _work(layer, device), layer.experts / layer.ep
    math_s, width = work.up_s + work.down_s, (2 if layer.gated else 1) * work.ffn
    return (
        float(layer.gated),
        math.ceil(width / 128) * 128 / width,
        math.ceil(work.ffn / PAD) * PAD / work.ffn,
        math.log(layer.tokens),
        math.log(local),
        float(layer.uneven),
        math.log(work.rows),
        math.log(work.rows / work.with_rows),
        math.log(work.with_rows),
        math.log(math_s),
        math.log(work.memory_s),
        math.log(math_s / work.memory_s),
        math.log(_base(work)),
        math.log(work.flops),
        math.log(work.weight_bytes),
        math.log(work.row_bytes),
        math.log(work.row_bytes / work.weight_bytes),
        math.log(work.up_waves),
        math.log(work.down_waves),
        work.up_waves / math.ceil(work.up_waves),
        work.down_waves / math.ceil(work.down_waves),
        math.log(layer.tp),
        math.log(layer.ep),
        math.log(layer.tokens * layer.hidden),
        math.log(work.rows / local),
        OPERAND_BYTES[layer.dtype],
        *device_features(device, layer.dtype),
    )
