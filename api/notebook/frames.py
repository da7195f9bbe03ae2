"""Rows as a pandas DataFrame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...spec.errors import InputError
from ...spec.report.report import MEMORY_TERMS, Prediction


def frame(rows: Iterable[dict[str, Any]]) -> Any:
    """Build a DataFrame of the rows, with their keys as columns.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        allowed = "an environment with pandas (the extra notebook brings it)"
        raise InputError("to_frame", "no pandas", allowed, "pip install pandas") from None
    return pandas.DataFrame(list(rows))


def memory_records(prediction: Prediction) -> list[dict[str, Any]]:
    """List one row per stage and tier: allocated, reserved, capacity, terms."""
    rows = prediction.memory
    others = dict.fromkeys(name for row in rows for name in row.by if name not in MEMORY_TERMS)
    return [
        {
            "stage": row.stage,
            "device_group": row.device_group,
            "tier": row.tier,
            "allocated_bytes": row.allocated_bytes,
            "reserved_bytes": row.reserved_bytes,
            "capacity_bytes": row.capacity_bytes,
            **{f"{name}_bytes": row.by.get(name, 0) for name in (*MEMORY_TERMS, *others)},
        }
        for row in rows
    ]
