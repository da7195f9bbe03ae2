"""Memory calibrations from measured peaks: rows, fits, held-out errors."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ...costmodel.calibration.fit import MAX_ROWS
from ...costmodel.calibration.memory_fit import MeasuredPeak, fit_memory
from ...datasets.published.runs import PublishedRun
from ...spec.cluster.calibration import (
    MEMORY_AS_SHIPPED,
    Calibration,
    CalibrationScope,
    MemoryCalibration,
    MemoryConstants,
    unfitted,
)
from ...spec.errors import InputError, NotBuiltError
from ..problem.stored_calibrations import calibration_scope, load_calibration
from .priced_run import PricedRun, price_run
from .time_calibration import MAX_UNIT_RATIO, sample_rows

NO_PEAK = "no peak memory, and no end for lack of it"


def priced_peaks(runs: Sequence[PublishedRun]) -> list[PricedRun]:
    """Keep priceable rows with a peak or an OOM."""
    peaks = []
    for run in runs:
        if run.peak_mem_gib is None and not run.oom:
            continue
        try:
            peaks.append(price_run(run))
        except (InputError, NotBuiltError):
            continue
    return peaks


def unusable_reason(run: PublishedRun) -> InputError:
    """Return why a row cannot be used."""
    try:
        price_run(run)
    except (InputError, NotBuiltError) as error:
        return InputError(f"{run.id}: row", str(error), "one that can be priced")
    return InputError(f"{run.id}: peak_mem_gib", "nothing", "the peak of a run that went on")


def measured_peaks(rows: Sequence[PricedRun]) -> list[PricedRun]:
    """Rows that reached their peak."""
    return [row for row in rows if row.measured_bytes is not None]


def check_bytes(rows: Sequence[PricedRun]) -> None:
    """Check that rows are in GiB: no prediction is that far off.

    Raises:
        InputError: most peaks are many times as large, or as small, as predicted.
    """
    times = statistics.median(_peak_bytes(row) / row.predicted_bytes for row in rows)
    if not 1 / MAX_UNIT_RATIO <= times <= MAX_UNIT_RATIO:
        mistake = f"peaks {times:.3g} times as large as they are predicted"
        raise InputError("--data: peak_mem_gib", mistake, "GiB of a device")


def fit_memory_rows(rows: Sequence[PricedRun]) -> MemoryCalibration:
    """Fit memory constants to rows of one device and stack."""
    if len({row.place for row in rows}) > 1:
        raise ValueError("rows of several devices or stacks")
    return fit_memory([MeasuredPeak(row.run.id, _peak_bytes(row), row.bytes_under) for row in rows])


def held_out_peaks(rows: Sequence[PricedRun], constants: MemoryConstants) -> dict[str, Any]:
    """Return median errors of held-out rows, shipped and calibrated."""
    if not rows:
        return {"rows": 0}
    shipped, after = (
        statistics.median(abs(row.bytes_under(c) / _peak_bytes(row) - 1) for row in rows)
        for c in (MEMORY_AS_SHIPPED, constants)
    )
    return {"rows": len(rows), "shipped_median_ape": shipped, "median_ape": after}


def memory_calibrations(rows: Sequence[PublishedRun], requested: str) -> dict[str, Calibration]:
    """Return each row's calibration by id, as ``--calibration`` asks.

    Raises:
        InputError: no calibration of that name, or one without memory constants.
    """
    places: dict[CalibrationScope, list[PricedRun]] = {}
    for row in priced_peaks(rows):
        places.setdefault(row.place, []).append(row)
    by_scope: dict[CalibrationScope, Calibration] = {}
    if requested == "fit":
        for scope, scope_rows in places.items():
            peaks = measured_peaks(scope_rows)
            few = sample_rows(peaks, min(MAX_ROWS, len(peaks) // 2))
            if few:
                base = unfitted(name="fit", device=scope.device, stack=scope.stack)
                by_scope[scope] = base.with_memory(fit_memory_rows(few))
    else:
        stored = load_calibration(requested)
        if stored.memory is None:
            raise InputError(
                "--calibration", requested, "one of memory: this one is of times alone"
            )
        by_scope[calibration_scope(stored).in_any_format] = stored
    return {
        row.run.id: by_scope[p]
        for p, scope_rows in places.items()
        if p in by_scope
        for row in scope_rows
    }


def _peak_bytes(row: PricedRun) -> float:
    if row.measured_bytes is None:
        raise RuntimeError("rows without a peak are left out")
    return row.measured_bytes
