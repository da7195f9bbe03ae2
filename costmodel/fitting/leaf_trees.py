"""Boosted trees on pooled leaves, beside the transformer: residual over the tiled nest.

The absolute error is fitted, so that one architecture's odd kernel (heads of 192 values take five
times as long on B200) does not spread to devices that nobody timed; each architecture weighs the
same, for B200, GB200 and GB300 are one witness.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..programs.leaf_trees import LeafTrees, leaf_rows
from ..programs.tile_work import DeviceRates, TileWork, tiled_seconds
from .boosting import fit_forest
from .program_rows import KernelRows
from .tile_constants import fit_constants

SETTINGS: dict[str, Any] = {
    "trees": 200,
    "max_depth": 4,
    "learning_rate": 0.08,
    "objective": "reg:absoluteerror",
}
Mask = NDArray[np.bool_]


def chosen(rows: KernelRows, keep: Mask) -> KernelRows:
    """Rows marked by ``keep``."""
    return rows._replace(
        leaves=rows.leaves.rows(np.flatnonzero(keep)),
        work=TileWork(*(x[keep] for x in rows.work)),
        on=DeviceRates(*(x[keep] for x in rows.on)),
        vectors=rows.vectors[keep],
        device=rows.device[keep],
        time_s=rows.time_s[keep],
        sizes={name: values[keep] for name, values in rows.sizes.items()},
        shipped=rows.shipped[keep],
        shipped_base_s=rows.shipped_base_s[keep],
    )


def leaf_seconds(trees: LeafTrees, rows: KernelRows) -> Floats:
    """Predicted seconds of rows."""
    seconds: Floats = np.exp(trees.log_seconds(rows.leaves, rows.work, rows.on, rows.shipped))
    return seconds


def fit_leaf_trees(rows: KernelRows) -> LeafTrees:
    """Constants, then trees of log(measured / tiled nest)."""
    weights = rows.weights
    constants = fit_constants(rows.work, rows.on, rows.time_s, weights)
    base_s = tiled_seconds(rows.work, rows.on, constants)
    targets: Floats = np.log(rows.time_s / base_s)
    inputs = leaf_rows(rows.leaves, rows.work, rows.on, constants, rows.shipped)
    forest = fit_forest(inputs, targets, weights=weights, **SETTINGS)
    return LeafTrees(constants, forest)
