"""Calibrations from uploaded tables of measured runs; nothing is run."""

from __future__ import annotations

from typing import Any

from ....datasets.published.runs import PEAK, UNNAMED, PublishedRun, parse_run
from ....spec.cluster.calibration import RESERVED_NAMES
from ....spec.codec import to_document
from ....spec.errors import InputError
from ...validation.table_fits import fit_peaks, fit_times
from .kernel_uploads import fit_uploaded_kernels
from .requests import ProfileBody


def fit_uploaded_table(body: ProfileBody) -> dict[str, Any]:
    """Fit a calibration to an uploaded table, of runs or of kernels.

    Returns:
        ``calibration``, its document; ``of_memory``, True if peaks were fitted, not times;
        ``counts``, as ``plan calibrate`` has them.

    Raises:
        InputError: a name with another meaning, or an unusable table.
    """
    if body.name in RESERVED_NAMES:
        raise InputError("name", body.name, "a name that is neither none nor fit")
    if any("op" in row for row in body.rows):
        return fit_uploaded_kernels(body.name, body.rows)
    of_memory = any(row.get(PEAK) not in (None, "") for row in body.rows)
    runs = _runs(body)
    fit = (fit_peaks if of_memory else fit_times)(body.name, runs, "rows: 0")
    document = to_document(fit.calibration)
    return {"calibration": document, "of_memory": of_memory, "counts": fit.counts}


def _runs(body: ProfileBody) -> list[PublishedRun]:
    runs: list[PublishedRun] = []
    columns: set[str] = set()
    for number, row in enumerate(body.rows):
        named = {**row, "id": row.get("id") or f"{UNNAMED}-{number}"}
        try:
            run = parse_run(named, "row")
        except InputError as error:
            column = error.field.partition(": ")[2]
            where = f"rows: {number}.{column}"
            raise InputError(where, error.given, error.allowed, error.nearest) from None
        if run.id in columns:
            raise InputError(f"rows: {number}.id", run.id, "an id that no other row has")
        columns.add(run.id)
        runs.append(run)
    return runs
