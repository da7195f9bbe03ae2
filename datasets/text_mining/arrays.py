"""Ragged arrays: rows of any length in one array of values and one of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays

Array = np.ndarray[Any, Any]


def ragged(rows: Sequence[Array], dtype: str) -> dict[str, Array]:
    """Rows as ``values`` and ``bounds`` (rows + 1)."""
    bounds = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=bounds[1:])
    values = np.concatenate([np.asarray(row, dtype=dtype) for row in rows] or [np.empty(0, dtype)])
    return {"values": values.astype(dtype, copy=False), "bounds": bounds}


def rows_of(arrays: Arrays) -> Iterator[Array]:
    """Rows of a ragged array."""
    values, bounds = arrays["values"], arrays["bounds"].tolist()
    for start, end in pairwise(bounds):
        yield values[start:end]


def all_rows(parts: Sequence[Arrays]) -> Iterator[Array]:
    """Rows of several ragged arrays, one after another."""
    for part in parts:
        yield from rows_of(part)


def joined(parts: Sequence[Arrays], name: str) -> Array:
    """One array of all buckets, in order."""
    arrays = [part[name] for part in parts]
    return np.concatenate(arrays) if arrays else np.empty(0)


def texts_array(texts: Sequence[str]) -> Array:
    """ASCII texts, such as digests, as fixed-width bytes."""
    return np.array([text.encode() for text in texts] or [b""], dtype=np.bytes_)[: len(texts)]
