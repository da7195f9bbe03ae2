"""Features of learned causal flash attention prices: sizes, tiles, roofline, device.

The base is a sum, ``launch + arithmetic + memory``, since a kernel of many short sequences first
reads and then computes. Arithmetic is that of whole tiles of 128 queries and 128 keys on and below
the diagonal, at three quarters of the products' rate, and at least the longest row of tiles on one
multiprocessor. The trees predict log(measured / base).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...datasets.catalogue.device import Device
from .device_features import device_features
from .flash_efficiency import UNMEASURED
from .roofline import peak_flops_per_s

TILE = 128
VALUE_BYTES = 2.0
NAMES = (
    *("log_seq", "log_batch", "log_heads", "log_kv_heads", "log_sharing", "head_dim"),
    *("log_heads_in_all", "log_kv_heads_in_all", "log_waves", "wave_share", "log_math_s"),
    *("log_memory_s", "log_intensity", "log_base_s", "longest_share", "log_keys_over_l2"),
    *("log_bytes_over_l2", "log_kv_waves", "tail", "asynchronous", "log_bandwidth", "log_peak"),
    *("log_balance", "ceiling"),
)


class Flash(NamedTuple):
    """Forward causal attention of ``batch`` sequences."""

    batch: float
    heads: float
    kv_heads: float
    seq: float
    head_dim: float
    dtype: str


class _AttentionWork(NamedTuple):
    tiles: float
    math_s: float
    longest_s: float
    traffic_bytes: float
    memory_s: float


def _work(flash: Flash, device: Device) -> _AttentionWork:
    rows = math.ceil(flash.seq / TILE)
    tile_flops = 4 * TILE * TILE * flash.head_dim
    flops = flash.batch * flash.heads * rows * (rows + 1) / 2 * tile_flops
    rate = peak_flops_per_s(device, flash.dtype) * device.matmul_ceiling * UNMEASURED
    longest_s = rows * tile_flops * device.sm_count / rate
    values = flash.batch * flash.seq * flash.head_dim * (2 * flash.heads + 4 * flash.kv_heads)
    bandwidth = device.memory_bandwidth_bytes_per_s * device.memory_ceiling
    return _AttentionWork(
        tiles=flash.batch * flash.heads * rows,
        math_s=max(flops / rate, longest_s),
        longest_s=longest_s * rate / flops,
        traffic_bytes=VALUE_BYTES * values,
        memory_s=VALUE_BYTES * values / bandwidth,
    )


def base_seconds(flash: Flash, device: Device) -> float:
    """Launch, arithmetic and memory in sequence; keys and values are also written."""
    return _base(_work(flash, device), device)


def _base(work: _AttentionWork, device: Device) -> float:
    return device.kernel_launch_s + work.math_s + work.memory_s


def attention_features(flash: Flash, device: Device) -> tuple[float, ...]:
    """The values named by :data:`NAMES`."""
    batch, heads, kv_heads, seq, head_dim, dtype = flash
    work = _work(flash, device)
    waves, sharing = work.tiles / device.sm_count, heads / kv_heads
    keys_bytes = 2 * VALUE_BYTES * batch * kv_heads * seq * head_dim
    return (
        math.log(seq),
        math.log(batch),
        math.log(heads),
        math.log(kv_heads),
        math.log(sharing),
        head_dim,
        math.log(batch * heads),
        math.log(batch * kv_heads),
        math.log(waves),
        waves / math.ceil(waves),
        math.log(work.math_s),
        math.log(work.memory_s),
        math.log(work.math_s / work.memory_s),
        math.log(_base(work, device)),
        work.longest_s,
        math.log(keys_bytes / device.l2_bytes),
        math.log(work.traffic_bytes / device.l2_bytes),
        math.log(batch * kv_heads * math.ceil(seq * sharing / TILE) / device.sm_count),
        math.ceil(seq / TILE) - seq / TILE,
        *device_features(device, dtype),
    )
