"""Seconds of causal flash attention on one device, measured or learned.

A grid is over key and value heads, heads, sequences and tokens, for one head width. Fewer heads
than the grid's least count as more sequences: 4 heads of 6 sequences are 8 heads of 3. Key and
value heads are (1, 2, 4, 8, 16, as many as heads), the last two interpolated by logarithm. Beyond
the grid, and for other widths, time grows with the work. Fewer heads times sequences than the
grid's least take less by the learned prices' analytic base, where a launch and the longest row of
tiles last as long. (8 heads from 16 so: mean error 7 to 13 % by device; in proportion to the heads
25 to 38 %.) The backward, and FlashAttention-2 on Hopper where later kernels were measured, keep
their ratio to the roofline.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import SHARED_HEADS, timed_grid
from ...spec.report.work_items import FLASH, Kernel
from ..arrays import Floats
from .attention_features import VALUE_BYTES, Flash, attention_features, base_seconds
from .flash_efficiency import HALF_TOKENS
from .forest import Forest
from .log_grid import LogGrid, filled
from .roofline import kernel_seconds
from .shipped_forests import shipped_forest

AS_MANY = 32.0
"""Axis position of as many key and value heads as heads."""
KV_AXIS = (*(float(n) for n in SHARED_HEADS), AS_MANY)
WIDTHS = (64, 128, 256)
"""Head widths measured with all numbers of heads."""
LEARNED_WIDTH = 128
DTYPES = ("bf16", "fp16")
LEAST_WORK = 5e6
"""Heads times sequences times tokens squared below which launches and latency dominate: some 10
us on every device.
"""


class AttentionGrid:
    """Seconds of forward causal attention.

    Args:
        owner: device of the grids.
        grids: by head width, log seconds over (kv axis, heads, batch, seq).
        least_heads: fewest heads in the grids.
    """

    def __init__(self, owner: Device, grids: dict[int, LogGrid], least_heads: int) -> None:
        self._owner, self._grids, self._least_heads = owner, grids, least_heads

    def seconds(self, kernel: Kernel, on: Device, generation: int) -> float:
        """Seconds on the grids' device or another of the same chip.

        ``kernel``: plain causal flash attention; ``generation``: of the stack's flash kernels.
        """
        batch, heads, kv_heads, seq, width = kernel.shape
        grid_width = min(self._grids, key=lambda w: (abs(math.log(w / width)), w))
        folded = max(1.0, self._least_heads / heads)
        sizes = (
            kv_axis_position(kv_heads * folded, heads * folded),
            heads * folded,
            batch / folded,
            seq,
        )
        log_s, (_, inside_heads, inside_batch, inside_seq) = self._grids[grid_width].at(sizes)
        rows = batch * heads / (inside_batch * inside_heads)
        if rows < 1:
            dtype = _dtype_of(self._owner)
            rows = self._fewer(Flash(batch, heads, kv_heads, inside_seq, grid_width, dtype), rows)
        beyond = rows * max(1.0, seq / inside_seq) ** 2 * width / grid_width
        forward = _forward(batch, heads, kv_heads, seq, width, kernel.dtype)
        ratio = kernel_seconds(kernel, on, generation) / kernel_seconds(forward, self._owner)
        return math.exp(log_s) * beyond * ratio

    def _fewer(self, few: Flash, rows: float) -> float:
        """Analytic time of ``few`` heads over that of the grid's least."""
        least = few._replace(heads=few.heads / rows, kv_heads=few.kv_heads / rows)
        return base_seconds(few, self._owner) / base_seconds(least, self._owner)


def kv_axis_position(kv_heads: float, heads: float) -> float:
    """Axis position of a number of key and value heads."""
    if kv_heads >= heads:
        return AS_MANY
    if kv_heads <= SHARED_HEADS[-1]:
        return kv_heads
    share = math.log(kv_heads / SHARED_HEADS[-1]) / math.log(heads / SHARED_HEADS[-1])
    return float(SHARED_HEADS[-1] * (AS_MANY / SHARED_HEADS[-1]) ** share)


def _forward(batch: int, heads: int, kv_heads: int, seq: int, width: int, dtype: str) -> Kernel:
    traffic_bytes = VALUE_BYTES * batch * seq * width * 2 * (heads + kv_heads)
    flops = 4 * batch * heads * seq**2 * width
    shape = (batch, heads, kv_heads, seq, width)
    return Kernel(FLASH, shape, dtype, flops, round(traffic_bytes))


@cache
def measured_attention_grid(name: str) -> AttentionGrid | None:
    """Grids measured on the named device, or None."""
    timings = timed_grid("attention")
    times = timings.table(name, "bf16")
    if times is None:
        return None
    axes, grids = _axes(1), {}
    work = _log_work(axes)
    for width in WIDTHS:
        log_s = np.log(times[timings.axes["head_dim"].index(width)], dtype=np.float64)
        if np.isfinite(log_s).any():
            grids[width] = LogGrid(axes, filled(log_s, work))
    return AttentionGrid(device(name), grids, timings.axes["heads"][0])


@cache
def learned_attention_grid(name: str) -> AttentionGrid:
    """Grid predicted by the bundled trees, for heads of 128 values."""
    on, axes = device(name), _axes(2)
    log_s = learned_attention_times(on, LEARNED_WIDTH, axes, shipped_forest("attention"))
    least = timed_grid("attention").axes["heads"][0]
    return AttentionGrid(on, {LEARNED_WIDTH: LogGrid(axes, log_s)}, least)


def learned_attention_times(
    on: Device, width: int, axes: list[tuple[float, ...]], forest: Forest
) -> Floats:
    """Log seconds over (kv axis, heads, batch, seq) predicted by ``forest``."""
    works = [_flash(width, _dtype_of(on), *sizes) for sizes in product(*axes)]
    rows = np.array([attention_features(work, on) for work in works], dtype=np.float32)
    base = np.log([base_seconds(work, on) for work in works])
    return np.reshape(base + forest.at(rows), [len(axis) for axis in axes])


def _axes(step: int) -> list[tuple[float, ...]]:
    axes = timed_grid("attention").axes
    sizes = [tuple(map(float, axes[name][::step])) for name in ("heads", "batch", "seq")]
    return [KV_AXIS, *sizes]


def _log_work(axes: list[tuple[float, ...]]) -> Floats:
    """Log work over the grid, to compare unmeasured sizes.

    Heads times sequences times squared tokens; little of it counts as none.
    """
    _, heads, batch, seq = np.meshgrid(*map(np.array, axes), indexing="ij")
    log_work: Floats = np.log1p(batch * heads * seq * (seq + HALF_TOKENS) / LEAST_WORK)
    return log_work


def _dtype_of(on: Device) -> str:
    """A device's 16-bit product format: before Ampere, no bf16."""
    return next((dtype for dtype in DTYPES if dtype in on.peak_flops_per_s), "fp32")


def _flash(
    width: int, dtype: str, kv_position: float, heads: float, batch: float, seq: float
) -> Flash:
    kv_heads = heads if kv_position == AS_MANY else min(kv_position, heads)
    return Flash(batch, heads, kv_heads, seq, width, dtype)
