"""``plan validate``: published runs priced and held against what was measured, by source.

A table of times or of peak memory, told apart by its columns. Split by source, never by random
row: neighbouring rows are nearly the same run. Times in seconds, since TFLOP/s are counted
differently by every source. With ``calibration`` none nothing is fitted to any row, so every row
counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..datasets.published.runs import TABLE, PublishedRun, is_of_memory, published_runs
from ..spec.errors import InputError, NotBuiltError
from .priced_run import PricedRun, priced
from .validation_scores import memory_scores, memory_totals, order_scores, time_scores

NO_SECONDS = "no seconds and no tokens a second"
NO_PEAK = "no peak memory, and no end for lack of it"


def validate(table: Path | None = None) -> dict[str, Any]:
    """The document of ``plan validate`` for a table (None: the bundled one of times).

    Raises:
        InputError: a row that cannot be read, by line and field.
    """
    table = table or TABLE
    runs = published_runs(table)
    if not runs:
        raise InputError(f"--data {table}", "no rows", "a table with a row a run")
    of_memory = is_of_memory(table)
    sources: dict[str, list[PublishedRun]] = {}
    for run in runs:
        sources.setdefault(run.source_name, []).append(run)
    skipped: Counter[str] = Counter()
    by_source = {name: list(_priced(rows, of_memory, skipped)) for name, rows in sources.items()}
    every = [row for rows in by_source.values() for row in rows]
    scores: Callable[[Sequence[PricedRun]], dict[str, Any]]
    scores = memory_scores if of_memory else time_scores
    return {
        "metric": "peak_memory" if of_memory else "step_time",
        "data": table.name,
        "calibration": "none",
        "rows_read": len(runs),
        "rows_priced": len(every),
        "rows_skipped": dict(sorted(skipped.items())),
        **scores(every),
        **(memory_totals(every) if of_memory else {}),
        "by_source": {
            name: _source(sources[name], rows)
            | scores(rows)
            | (memory_totals(rows) if of_memory else order_scores(rows))
            for name, rows in by_source.items()
        },
    }


def _priced(
    rows: Sequence[PublishedRun], of_memory: bool, skipped: Counter[str]
) -> Iterator[PricedRun]:
    """The rows that can be priced and were measured; the others are counted by reason."""
    for run in rows:
        if of_memory and run.peak_mem_gib is None and not run.oom:
            skipped[NO_PEAK] += 1
            continue
        try:
            row = priced(run)
        except (InputError, NotBuiltError) as error:
            skipped[str(error).removeprefix(f"{run.id}: ").removeprefix("--")] += 1
            continue
        if row.measured_s is None and not of_memory:
            skipped[NO_SECONDS] += 1
        else:
            yield row


def _source(rows: Sequence[PublishedRun], found: Sequence[PricedRun]) -> dict[str, Any]:
    assumed = Counter(path for row in found for path in row.assumed)
    return {
        "rows_read": len(rows),
        "rows_priced": len(found),
        "assumed_fields": dict(sorted(assumed.items())),
        "fitted_on": [],
    }
