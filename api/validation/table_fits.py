"""Calibrations from whole tables: fitted rows, held-out rows, counts.

``plan calibrate`` and the service's ``POST /v1/profiles`` share these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.pricing.version import PRICING_VERSION
from ...datasets.published.runs import PublishedRun
from ...spec.cluster.calibration import Calibration, CalibrationScope, unfitted
from ...spec.errors import InputError
from .memory_calibration import (
    check_bytes,
    fit_memory_rows,
    held_out_peaks,
    measured_peaks,
    priced_peaks,
    unusable_reason,
)
from .time_calibration import (
    check_seconds,
    fit_rows,
    held_out_errors,
    sample_rows,
    usable_rows,
    usable_run,
)

ROWS_NEEDED = "a table with a row that was measured and can be priced"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFit:
    """Calibration with a summary of its table.

    ``counts``: ``rows_read``, ``rows_usable`` and ``held_out``, the errors of rows outside the fit.
    """

    calibration: Calibration
    counts: dict[str, Any]


def fit_times(name: str, runs: Sequence[PublishedRun], where: str) -> TableFit:
    """Fit a time calibration to a table of step times.

    ``where`` names the table in errors.

    Raises:
        InputError: no usable row; rows of several devices, stacks or product formats; or times that
            are not in seconds.
    """
    rows = usable_rows(runs)
    if not rows:
        if runs:
            usable_run(runs[0])  # says what the first row lacks
        raise InputError(where, "no rows", ROWS_NEEDED)
    _one_place({row.place for row in rows}, "one device, one stack and one format of products")
    used = sample_rows(rows)
    check_seconds(used)
    calibration = fit_rows(name, used)
    rest = [row for row in rows if row.run.id not in calibration.fitted_on]
    held_out = held_out_errors(rest, calibration)
    return TableFit(calibration=calibration, counts=_counts(runs, rows, held_out))


def fit_peaks(name: str, runs: Sequence[PublishedRun], where: str) -> TableFit:
    """Fit a memory calibration to a table of peaks, as :func:`fit_times`.

    Raises:
        InputError: no usable row, rows of several places, or peaks that are not in GiB.
    """
    rows = measured_peaks(priced_peaks(runs))
    if not rows:
        raise unusable_reason(runs[0]) if runs else InputError(where, "no rows", ROWS_NEEDED)
    scope = _one_place({row.place for row in rows}, "one device and one stack")
    used = sample_rows(rows)
    check_bytes(used)
    memory = fit_memory_rows(used)
    base = unfitted(name=name, device=scope.device, stack=scope.stack)
    base = replace(base, pricing_version=PRICING_VERSION)
    rest = [row for row in rows if row.run.id not in memory.fitted_on]
    held_out = held_out_peaks(rest, memory.constants)
    return TableFit(calibration=base.with_memory(memory), counts=_counts(runs, rows, held_out))


def _counts(
    runs: Sequence[PublishedRun], rows: Sequence[object], held_out: dict[str, Any]
) -> dict[str, Any]:
    return {"rows_read": len(runs), "rows_usable": len(rows), "held_out": held_out}


def _one_place(places: set[CalibrationScope], what: str) -> CalibrationScope:
    if len(places) > 1:
        listed = ", ".join(map(str, sorted(places)))
        raise InputError("--data", listed, f"rows of {what}")
    return next(iter(places))
