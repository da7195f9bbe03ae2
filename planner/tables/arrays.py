"""Array types of the planner, and structured arrays as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]
"""A structured array: its columns are read by the names of their fields."""

NO_TIERS: Floats = np.zeros((0, 0))
"""Bytes by tier, shape (tiers, options), where no tier is granted."""


def with_tiers(device_bytes: Floats, tier_bytes: Floats) -> Floats:
    """Bytes of options by memory, the device's first, shape (1 + tiers, options)."""
    return (
        np.concatenate([device_bytes[None], tier_bytes]) if len(tier_bytes) else device_bytes[None]
    )


def granted_columns(column: Floats, tiers: Sequence[int]) -> Floats:
    """Bytes by ``TIERS`` of options as rows of some: (options, TIERS) to (tiers, options)."""
    return np.ascontiguousarray(column[:, list(tiers)].T) if tiers else NO_TIERS


def masked(tier_bytes: Floats, rows: Bools | Ints) -> Floats:
    """The options of a mask, or of these rows, of shape (tiers, options)."""
    return tier_bytes[:, rows] if len(tier_bytes) else tier_bytes


def as_matrix(records: Records) -> Floats:
    """View float records as a matrix, shape (records, figures)."""
    figures = records.dtype.itemsize // np.dtype(np.float64).itemsize
    return records.reshape(-1).view(np.float64).reshape(records.size, figures)


def record(row: tuple[Any, ...], dtype: np.dtype[np.void]) -> np.void:
    """One row of a structured array."""
    scalar: np.void = np.array([row], dtype=dtype)[0]
    return scalar
