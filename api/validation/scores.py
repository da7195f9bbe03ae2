"""Scores of priced runs: step times, ranks, intervals, peaks."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...costmodel.explain.accuracy import Errors, Pair, errors_of, fitted_mfu, ranking_of
from ...spec.report.report import INTERVAL_LEVEL
from ...spec.units import GIB
from .priced_run import PricedRun, count_of

QUESTION_COLUMNS = (
    *("model", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "experts", "topk"),
    *("hardware", "gpus", "gpus_per_node", "interconnect", "seq", "dtype", "global_batch"),
)
"""What rows have in common that differ in their layout alone."""
LAYOUT_COLUMNS = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "micro_batch", "recompute")


def time_scores(rows: Sequence[PricedRun]) -> dict[str, Any]:
    """Score step times, intervals and both baselines on the same rows."""
    return {
        **asdict(errors_of([(row.predicted_s, _seconds(row)) for row in rows])),
        "interval": _interval(rows),
        "fits": sum(row.prediction.feasible for row in rows),
        "baselines": {
            "constant_mfu": asdict(_constant_mfu(rows)),
            "six_n_tokens": asdict(errors_of([(row.six_n_s, _seconds(row)) for row in rows])),
        },
    }


def _seconds(row: PricedRun) -> float:
    if row.measured_s is None:
        raise RuntimeError("rows that were not timed are skipped")
    return row.measured_s


def _constant_mfu(rows: Sequence[PricedRun]) -> Errors:
    if not rows:
        return errors_of([])
    mfu = fitted_mfu([(row.at_peak_s, _seconds(row)) for row in rows])
    return errors_of([(row.at_peak_s / mfu, _seconds(row)) for row in rows])


def _interval(rows: Sequence[PricedRun]) -> dict[str, Any]:
    bounds = [row.prediction.step_time_interval_s for row in rows]
    inside = [low <= _seconds(row) <= high for row, (low, high) in zip(rows, bounds, strict=True)]
    halves = [
        (high - low) / 2 / row.predicted_s for row, (low, high) in zip(rows, bounds, strict=True)
    ]
    return {
        "level": INTERVAL_LEVEL,
        "holds": statistics.fmean(inside) if rows else None,
        "mean_half_width": statistics.fmean(halves) if rows else None,
    }


def order_scores(rows: Sequence[PricedRun]) -> dict[str, Any]:
    """Rank correlation and regret within layout groups of one question."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], list[PricedRun]]] = {}
    for row in rows:
        question, layout = (
            tuple(getattr(row.run, name) for name in names)
            for names in (QUESTION_COLUMNS, LAYOUT_COLUMNS)
        )
        groups.setdefault(question, {}).setdefault(layout, []).append(row)
    return asdict(ranking_of([[*map(_pair, layouts.values())] for layouts in groups.values()]))


def _pair(runs: Sequence[PricedRun]) -> Pair:
    return runs[0].predicted_s, statistics.median(map(_seconds, runs))


def points_of(rows: Sequence[PricedRun], of_memory: bool) -> list[Pair]:
    """Return predicted and measured seconds, or GiB of peaks."""
    if not of_memory:
        return [(row.predicted_s, _seconds(row)) for row in rows]
    peaks = [(row.predicted_bytes, row.measured_bytes) for row in rows]
    return [(predicted / GIB, measured / GIB) for predicted, measured in peaks if measured]


def memory_scores(rows: Sequence[PricedRun]) -> dict[str, Any]:
    """Score peaks, and the textbook count of states.

    States are parameters, gradients and optimizer states.
    """
    peaks = [(row, row.measured_bytes) for row in rows]
    return {
        **asdict(errors_of([(row.predicted_bytes, peak) for row, peak in peaks if peak])),
        "baselines": {
            "static": asdict(errors_of([(row.static_bytes, peak) for row, peak in peaks if peak])),
        },
    }


def memory_totals(rows: Sequence[PricedRun]) -> dict[str, Any]:
    """Count rows, and misjudged fits both ways."""
    ended = [row for row in rows if row.run.oom]
    went = [row for row in rows if not row.run.oom]
    return {
        "counted": dict(sorted(Counter(count_of(row.run.metric_kind) for row in rows).items())),
        "out_of_memory": len(ended),
        "false_fit": sum(row.prediction.feasible for row in ended),
        "false_oom": sum(not row.prediction.feasible for row in went),
    }
