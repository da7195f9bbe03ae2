"""Train the bundled forests; run by a maintainer.

    python -m shardwright.costmodel.fitting.train

writes ``datasets/measured/NAME.npz``, with ``leaves`` only ``attention_leaves.npz``. Same grids,
same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..kernel_latency.forest import Forest
from ..kernel_latency.shipped_forests import FOLDER
from ..programs.leaf_trees import FILE as LEAVES_FILE
from .boosting import DEEPER, fit_forest
from .leaf_trees import fit_leaf_trees
from .program_rows import kernel_rows
from .samples import Samples, attention_samples, experts_samples, gemm_samples

NARROW = ("fp8", "nvfp4")
LEAVES_THINNED = 3


def write_forest(path: Path, forest: Forest, **more: Any) -> None:
    """Write the arrays of a forest, and ``more``, compressed."""
    np.savez_compressed(
        path,
        feature=forest.feature,
        threshold=forest.threshold,
        left=forest.left,
        value=forest.value,
        roots=forest.roots,
        depth=np.int32(forest.depth),
        **more,
    )


def train(name: str, samples: Samples, **settings: Any) -> None:
    """Fit one forest to all of ``samples`` and write it."""
    forest = fit_forest(samples.features, samples.targets, **settings)
    write_forest(FOLDER / f"{name}.npz", forest)
    sys.stdout.write(f"{name}: {len(samples.time_s)} rows, {len(forest.feature)} nodes\n")


def train_leaves() -> None:
    """Fit trees on leaves to every third attention of every device, and write them."""
    rows = kernel_rows("attention", thinned=LEAVES_THINNED)
    trees = fit_leaf_trees(rows)
    write_forest(LEAVES_FILE, trees.forest, constants=np.array(trees.constants))
    sys.stdout.write(f"attention_leaves: {len(rows.time_s)} rows\n")


def main() -> int:
    """Train every bundled forest."""
    if sys.argv[1:] == ["leaves"]:
        train_leaves()
        return 0
    products = gemm_samples()
    train("gemm_bf16", products.where(products.dtype == "bf16"))
    train("gemm_narrow", products.where(np.isin(products.dtype, NARROW)))
    train("attention", attention_samples(), **DEEPER)
    train("experts", experts_samples())
    train_leaves()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
