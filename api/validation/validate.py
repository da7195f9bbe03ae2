"""``plan validate``: published runs, predicted against measured, by source.

A table of times or of memory peaks, told apart by its columns. Split by source, never by random
row: neighboring rows are nearly the same run. Times in seconds, since sources count TFLOP/s
differently. With ``calibration`` none nothing is fitted, so every row counts; with fit up to ten
rows, and at most half, of each device, stack and product format of a source (of peaks: device and
stack), drawn by a fixed seed, are fitted and not scored; with a name only rows of its device, stack
and format are priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...costmodel.calibration.fit import MAX_ROWS
from ...costmodel.explain.accuracy import Pair
from ...datasets.published.runs import TABLE, PublishedRun, is_memory_table, read_runs
from ...spec.cluster.calibration import Calibration, CalibrationScope
from ...spec.errors import InputError, NotBuiltError
from ..problem.stored_calibrations import calibration_scope, load_calibration
from .memory_calibration import NO_PEAK, memory_calibrations
from .priced_run import PricedRun, price_run
from .scores import memory_scores, memory_totals, order_scores, points_of, time_scores
from .time_calibration import UsableRun, fit_rows, sample_rows, usable_rows

NO_SECONDS = "no seconds and no tokens a second"
FITTED_ON = "fitted on, so not scored"
TOO_FEW = "too few rows of its device, stack and format to fit"
TOO_FEW_PEAKS = "too few rows of its device and stack to fit"


@dataclass(frozen=True, slots=True)
class RunCalibrations:
    """Calibrations by run id.

    ``missing_reason``: why runs without one are left out. ``read`` holds runs already read as
    questions, to price them without reading them again.
    """

    by_run: Mapping[str, Calibration] = field(default_factory=dict)
    missing_reason: str = ""
    read: Mapping[str, UsableRun] = field(default_factory=dict)


class ValidationResult(NamedTuple):
    """The document of ``plan validate``, with its points by source."""

    document: dict[str, Any]
    points: dict[str, list[Pair]]


def validate(table: Path | None = None, calibration: str = "none") -> dict[str, Any]:
    """The document of :func:`validation_result`."""
    return validation_result(table, calibration).document


def validation_result(table: Path | None = None, calibration: str = "none") -> ValidationResult:
    """Validate a table: document and points to draw.

    Args:
        table: None is the bundled one of times.
        calibration: ``none``, ``fit`` or the name of a stored one.

    Raises:
        InputError: no such table or calibration; one without constants of what the table measured.
    """
    table = table or TABLE
    runs, unreadable = read_runs(table)
    if not runs and not unreadable:
        raise InputError(f"--data {table}", "no rows", "a table with a row a run")
    of_memory = is_memory_table(table)
    sources: dict[str, list[PublishedRun]] = {}
    for run in runs:
        sources.setdefault(run.source_name, []).append(run)
    skipped = Counter(str(error).removeprefix(f"{table.name} ") for error in unreadable)
    choose = _memory_calibrations if of_memory else _time_calibrations
    chosen = {name: choose(rows, calibration) for name, rows in sources.items()}
    by_source = {
        name: list(_priced(rows, of_memory, chosen[name], skipped))
        for name, rows in sources.items()
    }
    every = [row for rows in by_source.values() for row in rows]
    scores: Callable[[Sequence[PricedRun]], dict[str, Any]]
    scores = memory_scores if of_memory else time_scores
    document = {
        "metric": "peak_memory" if of_memory else "step_time",
        "data": table.name,
        "calibration": calibration,
        "rows_read": len(runs) + len(unreadable),
        "rows_priced": len(every),
        "rows_skipped": dict(sorted(skipped.items())),
        **scores(every),
        **(memory_totals(every) if of_memory else {}),
        "by_source": {
            name: _source_document(sources[name], rows, chosen[name], of_memory)
            | scores(rows)
            | (memory_totals(rows) if of_memory else order_scores(rows))
            for name, rows in by_source.items()
        },
    }
    return ValidationResult(
        document, {name: points_of(rows, of_memory) for name, rows in by_source.items()}
    )


def _time_calibrations(rows: Sequence[PublishedRun], requested: str) -> RunCalibrations:
    """Choose the calibration of each row of a source."""
    if requested == "none":
        return RunCalibrations()
    read = {row.run.id: row for row in usable_rows(rows)}
    places: dict[CalibrationScope, list[UsableRun]] = {}
    for row in read.values():
        places.setdefault(row.place, []).append(row)
    if requested == "fit":
        drawn_rows = {
            p: sample_rows(stored_scope, min(MAX_ROWS, len(stored_scope) // 2))
            for p, stored_scope in places.items()
        }
        fitted = {p: fit_rows("fit", few) for p, few in drawn_rows.items() if few}
        return RunCalibrations(
            by_run=_calibration_by_run(places, fitted), missing_reason=TOO_FEW, read=read
        )
    stored = load_calibration(requested)
    if not stored.fitted_on:
        raise InputError("--calibration", requested, "one of times: this one is of memory alone")
    stored_scope = calibration_scope(stored)
    by_scope = {scope: stored for scope in places if stored_scope in (scope, scope.in_any_format)}
    why = f"not of the device, stack and format of {requested}"
    return RunCalibrations(
        by_run=_calibration_by_run(places, by_scope), missing_reason=why, read=read
    )


def _memory_calibrations(rows: Sequence[PublishedRun], requested: str) -> RunCalibrations:
    if requested == "none":
        return RunCalibrations()
    why = TOO_FEW_PEAKS if requested == "fit" else f"not of the device and stack of {requested}"
    return RunCalibrations(by_run=memory_calibrations(rows, requested), missing_reason=why)


def _calibration_by_run(
    places: Mapping[CalibrationScope, Sequence[UsableRun]],
    by_scope: Mapping[CalibrationScope, Calibration],
) -> dict[str, Calibration]:
    return {
        row.run.id: by_scope[p]
        for p, scope_rows in places.items()
        if p in by_scope
        for row in scope_rows
    }


def _priced(
    rows: Sequence[PublishedRun], of_memory: bool, chosen: RunCalibrations, skipped: Counter[str]
) -> Iterator[PricedRun]:
    """Yield priced, measured rows; count the others by reason."""
    for run in rows:
        if of_memory and run.peak_mem_gib is None and not run.oom:
            skipped[NO_PEAK] += 1
            continue
        calibration = chosen.by_run.get(run.id)
        if calibration is not None and run.id in _fitted_on(calibration, of_memory):
            skipped[FITTED_ON] += 1
            continue
        requested = chosen.read.get(run.id)
        try:
            row = price_run(run, calibration, requested.requested if requested else None)
        except (InputError, NotBuiltError) as error:
            skipped[str(error).removeprefix(f"{run.id}: ").removeprefix("--")] += 1
            continue
        if row.measured_s is None and not of_memory:
            skipped[NO_SECONDS] += 1
        elif calibration is None and chosen.missing_reason:
            skipped[chosen.missing_reason] += 1
        else:
            yield row


def _fitted_on(calibration: Calibration, of_memory: bool) -> tuple[str, ...]:
    if not of_memory:
        return calibration.fitted_on
    return () if calibration.memory is None else calibration.memory.fitted_on


def _constants(calibration: Calibration, of_memory: bool) -> dict[str, float]:
    if not of_memory:
        return asdict(calibration.factors)
    return {} if calibration.memory is None else asdict(calibration.memory.constants)


def _source_document(
    rows: Sequence[PublishedRun],
    priced: Sequence[PricedRun],
    chosen: RunCalibrations,
    of_memory: bool,
) -> dict[str, Any]:
    fitted = {c.scope.in_any_format if of_memory else c.scope: c for c in chosen.by_run.values()}
    assumed = Counter(path for row in priced for path in row.assumed)
    return {
        "rows_read": len(rows),
        "rows_priced": len(priced),
        "assumed_fields": dict(sorted(assumed.items())),
        "fitted_on": sorted({n for c in fitted.values() for n in _fitted_on(c, of_memory)}),
        "factors": {str(scope): _constants(c, of_memory) for scope, c in fitted.items()},
    }
