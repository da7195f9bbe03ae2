"""Fit the transformer in a child process, so that no other process loads torch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...spec.errors import InputError
from ..arrays import Floats
from ..programs.sequence import Leaves
from ..programs.transformer import Transformer, read_transformer

MOST_RATIO = 1e4
"""A row farther than this from its roofline, either way, is no measurement."""


class ProgramRows(NamedTuple):
    """Timed programs on devices: leaves, device vectors, rooflines, seconds, weights."""

    leaves: Leaves
    devices: NDArray[np.float32]
    base_s: Floats
    time_s: Floats
    weights: Floats

    @property
    def labels(self) -> Floats:
        """log(measured / roofline)."""
        ratio: Floats = np.log(self.time_s / self.base_s)
        return ratio

    def where(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> ProgramRows:
        """Rows marked or numbered by ``keep``."""
        numbers = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep.astype(np.intp)
        return ProgramRows(
            leaves=self.leaves.rows(numbers),
            devices=self.devices[numbers],
            base_s=self.base_s[numbers],
            time_s=self.time_s[numbers],
            weights=self.weights[numbers],
        )


class Settings(NamedTuple):
    """How to fit; ``alignment``: weight of the moment discrepancy to unlabelled target rows."""

    seed: int = 0
    epochs: int = 120
    positions: bool = True
    rate: float = 2e-3
    alignment: float = 0.0


def checked(rows: ProgramRows) -> ProgramRows:
    """The rows, once no time is impossible.

    Raises:
        InputError: names the first row whose seconds are not positive and near the roofline.
    """
    ratio = rows.time_s / rows.base_s
    good = np.isfinite(ratio) & (ratio > 1 / MOST_RATIO) & (ratio < MOST_RATIO)
    if not good.all():
        row = int(np.argmin(good))
        allowed = (
            f"positive seconds within {MOST_RATIO:g} times the roofline's {rows.base_s[row]:g}"
        )
        raise InputError(f"row {row}: time_s", float(rows.time_s[row]), allowed)
    return rows


def fit_transformer(
    rows: ProgramRows,
    settings: Settings,
    start: Transformer | None = None,
    target: ProgramRows | None = None,
) -> Transformer:
    """Weights fitted to rows, from ``start`` where given.

    Raises:
        InputError: a row is no measurement.
        RuntimeError: the child process failed; its last line is given.
    """
    given: dict[str, Any] = {
        **_arrays(checked(rows), ""),
        "labels": rows.labels,
        "weights": rows.weights,
    }
    if target is not None:
        given |= _arrays(target, "target_")
    if start is not None:
        given |= {f"start_{name}": values for name, values in start.weights.items()}
    given["settings"] = np.array(
        [settings.seed, settings.epochs, settings.positions, settings.rate * 1e3,
         settings.alignment if target is not None else 0.0]
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "rows.npz", Path(folder) / "weights.npz"
        np.savez(source, **given)
        module = f"{__package__}.train_transformer"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        child = subprocess.run(
            [sys.executable, "-P", "-m", module, str(source), str(result)],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        if child.returncode:
            raise RuntimeError(f"training ended with {child.stderr.strip().splitlines()[-1:]}")
        return read_transformer(result)


def _arrays(rows: ProgramRows, prefix: str) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}features": rows.leaves.features,
        f"{prefix}positions": rows.leaves.positions,
        f"{prefix}mask": rows.leaves.mask,
        f"{prefix}devices": rows.devices,
    }
