"""Array types of the planner, and structured arrays as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]
"""A structured array: its columns are read by the names of their fields."""


def as_matrix(records: Records) -> Floats:
    """View float records as a matrix, shape (records, figures)."""
    figures = records.dtype.itemsize // np.dtype(np.float64).itemsize
    return records.reshape(-1).view(np.float64).reshape(records.size, figures)


def record(row: tuple[Any, ...], dtype: np.dtype[np.void]) -> np.void:
    """One row of a structured array."""
    scalar: np.void = np.array([row], dtype=dtype)[0]
    return scalar
