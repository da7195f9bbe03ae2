"""Rows as a pandas DataFrame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal, get_args

from ...spec.errors import InputError, one_of
from ...spec.report.report import MEMORY_TERMS, Prediction, Report
from ..views.explanation import term_rows
from ..views.layer_table import layer_rows
from ..views.stage_table import stage_rows

Rows = Literal["terms", "memory", "stages", "layers"]
ROWS: tuple[Rows, ...] = get_args(Rows)
"""Tables of a report."""


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


def report_frame(report: Report, rows: Rows) -> Any:
    """Build a DataFrame of a report's terms, memory, stages or layers.

    Raises:
        InputError: another word, or pandas is not installed.
    """
    records = {
        "terms": lambda: term_rows(report.prediction),
        "memory": lambda: memory_records(report.prediction),
        "stages": lambda: stage_records(report),
        "layers": lambda: [asdict(row) for row in layer_rows(report.plan)],
    }
    return frame(records[one_of("to_frame", rows, ROWS)]())


def stage_records(report: Report) -> list[dict[str, Any]]:
    """List one row per split of a stage and device group, with its bytes of device memory."""
    records, number = [], ""
    for row in stage_rows(report.plan, report.prediction):
        number = row.stage or number
        cells = {name: value for name, value in asdict(row).items() if name != "memory"}
        memory = row.memory
        records.append(
            {
                **cells,
                "stage": int(number),
                "reserved_bytes": None if memory is None else memory.reserved_bytes,
                "capacity_bytes": None if memory is None else memory.capacity_bytes,
            }
        )
    return records


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
