"""Trees of the residual over a tiled nest, from pooled leaves: read and evaluated.

Fitted by :mod:`fitting.leaf_trees`; they price flash attention on devices of an architecture that
nobody timed, where they err less than the trees of sizes (:mod:`kernel_latency.learned_prices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import timed_grid
from ...spec.report.work_items import FLASH, Kernel
from ..arrays import Floats
from ..kernel_latency.attention_features import Flash, attention_features
from ..kernel_latency.attention_grid import (
    AS_MANY,
    KV_AXIS,
    LEARNED_WIDTH,
    AttentionGrid,
    learned_attention_grid,
)
from ..kernel_latency.forest import Forest, Rows, read_forest
from ..kernel_latency.learned_prices import learner_of
from ..kernel_latency.log_grid import LogGrid
from ..kernel_latency.shipped_forests import FOLDER
from .kernels import program_of
from .sequence import Leaves, leaves_of, pooled
from .tile_work import (
    DeviceRates,
    TileConstants,
    TileWork,
    on_device,
    rates,
    tile_work,
    tiled_seconds,
)

FILE = FOLDER / "attention_leaves.npz"
STEP = 2
"""Of the grid's sizes every second is predicted, as by the trees of sizes."""


class LeafTrees(NamedTuple):
    """Constants of the tiled nest and trees of the residual."""

    constants: TileConstants
    forest: Forest

    def log_seconds(self, leaves: Leaves, work: TileWork, on: DeviceRates, sizes: Rows) -> Floats:
        """Log of predicted seconds; ``sizes``: the features that the trees of sizes have too."""
        base: Floats = np.log(tiled_seconds(work, on, self.constants))
        return base + self.forest.at(leaf_rows(leaves, work, on, self.constants, sizes))


def leaf_rows(
    leaves: Leaves, work: TileWork, on: DeviceRates, constants: TileConstants, sizes: Rows
) -> Rows:
    """The nest on the device, the features of sizes, and the pooled leaves."""
    nest = on_device(work, on, constants)
    return np.concatenate([nest, sizes, pooled(leaves)], axis=1).astype(np.float32)


def read_leaf_trees(path: Path = FILE) -> LeafTrees:
    """Read trees and constants, executing nothing in the file."""
    with np.load(path, allow_pickle=False) as arrays:
        constants = TileConstants(*arrays["constants"].tolist())
    return LeafTrees(constants, read_forest(path))


@cache
def untimed_attention_grid(name: str) -> AttentionGrid:
    """Grid of an untimed device, by the learner that errs least on devices like it."""
    on = device(name)
    if learner_of("attention", on) != "leaf_trees":
        return learned_attention_grid(name)
    axes = timed_grid("attention").axes
    sizes = [tuple(map(float, axes[axis][::STEP])) for axis in ("heads", "batch", "seq")]
    every = [KV_AXIS, *sizes]
    log_s = np.reshape(_log_seconds(on, every), [len(axis) for axis in every])
    return AttentionGrid(on, {LEARNED_WIDTH: LogGrid(every, log_s)}, axes["heads"][0])


def _log_seconds(on: Device, axes: Sequence[Sequence[float]]) -> Floats:
    dtype = "bf16" if "bf16" in on.peak_flops_per_s else "fp16"
    flashes = [
        Flash(batch, heads, heads if kv == AS_MANY else min(kv, heads), seq, LEARNED_WIDTH, dtype)
        for kv, heads, batch, seq in product(*axes)
    ]
    programs = [program_of(_kernel(flash)) for flash in flashes]
    features = np.array([attention_features(flash, on) for flash in flashes], dtype=np.float32)
    every = DeviceRates(*(np.repeat(x, len(flashes)) for x in rates([on], dtype)))
    trees = read_leaf_trees()
    return trees.log_seconds(leaves_of(programs), tile_work(programs), every, features)


def _kernel(flash: Flash) -> Kernel:
    batch, heads, kv_heads, seq, width = (int(size) for size in flash[:5])
    return Kernel(FLASH, (batch, heads, kv_heads, seq, width), flash.dtype, 0, 0)
