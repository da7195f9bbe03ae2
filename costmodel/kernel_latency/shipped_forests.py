"""Bundled forests: fitted once by :mod:`train`, read on demand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .forest import Forest, read_forest

FOLDER = Path(__file__).parents[2] / "datasets" / "measured"


@cache
def shipped_forest(name: str) -> Forest:
    """The named forest, read once per process."""
    return read_forest(FOLDER / f"{name}.npz")
