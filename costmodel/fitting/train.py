"""Train the bundled forests; run by a maintainer.

    python -m shardwright.costmodel.fitting.train

writes ``datasets/measured/NAME.npz``. Same grids, same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..kernel_latency.forest import Forest
from ..kernel_latency.shipped_forests import FOLDER
from .boosting import DEEPER, fit_forest
from .samples import Samples, attention_samples, experts_samples, gemm_samples

NARROW = ("fp8", "nvfp4")


def write_forest(path: Path, forest: Forest) -> None:
    """Write the arrays of a forest, compressed."""
    np.savez_compressed(
        path,
        feature=forest.feature,
        threshold=forest.threshold,
        left=forest.left,
        value=forest.value,
        roots=forest.roots,
        depth=np.int32(forest.depth),
    )


def train(name: str, samples: Samples, **settings: Any) -> None:
    """Fit one forest to all of ``samples`` and write it."""
    forest = fit_forest(samples.features, samples.targets, **settings)
    write_forest(FOLDER / f"{name}.npz", forest)
    sys.stdout.write(f"{name}: {len(samples.time_s)} rows, {len(forest.feature)} nodes\n")


def main() -> int:
    """Train every bundled forest."""
    products = gemm_samples()
    train("gemm_bf16", products.where(products.dtype == "bf16"))
    train("gemm_narrow", products.where(np.isin(products.dtype, NARROW)))
    train("attention", attention_samples(), **DEEPER)
    train("experts", experts_samples())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
