"""Texts of what-if answers for the terminal, the notebook and drawings."""

from __future__ import annotations

from ...planner.what_if.answer import Answer, Moved, PricedPlan
from ...planner.what_if.setting import Change, Value
from ...spec.inputs.quantities import QuantityKind
from ...spec.inputs.what_if_keys import entry_of
from ...spec.report.report import Prediction
from ...spec.units import format_bytes, format_number, format_seconds
from ..views.report_text import ROUNDING, percent
from .document import swept_path
from .what_if import WhatIf

CLUSTER_PATH = "cluster"


def value_text(path: str, value: Value) -> str:
    """A value in its customary unit."""
    if isinstance(value, str):
        return value
    kind: QuantityKind = "number" if path == CLUSTER_PATH else entry_of(path).kind  # type: ignore[assignment]
    if kind == "bytes":
        return format_bytes(value)
    if kind == "bytes_per_s":
        return f"{format_number(value / 1e9, 4)} GB/s"
    if kind == "flops_per_s":
        return f"{format_number(value / 1e12, 4)} TFLOP/s"
    if kind == "seconds":
        return format_seconds(value)
    return f"{value:g}" if kind == "number" else str(int(value))


def change_text(change: Change) -> str:
    """``inter_node.bandwidth 50 GB/s -> 100 GB/s``."""
    was, now = (value_text(change.path, value) for value in (change.was, change.now))
    return f"{change.path} {was} -> {now}"


def swept_change(answered: WhatIf, answer: Answer) -> Change:
    """The sweep's change in a row."""
    path = swept_path(answered)
    return next(change for change in answer.row.changes if change.path == path)


def row_name(answered: WhatIf, answer: Answer) -> str:
    """The sweep value that names a row."""
    change = swept_change(answered, answer)
    return value_text(change.path, change.now)


def tokens_per_s(priced: PricedPlan) -> float:
    """Tokens a second of the whole cluster."""
    return priced.prediction.samples_per_s * priced.plan.workload.seq_len


def tokens_text(priced: PricedPlan) -> str:
    """Tokens a second of the whole cluster, in thousands if many."""
    rate = tokens_per_s(priced)
    return f"{format_number(rate / 1e3, 4)} k" if rate >= 1e4 else format_number(rate)


def work_differs(answered: WhatIf) -> bool:
    """Return True if the answer's steps differ in amount of work.

    Their seconds do not compare then.
    """
    paths = {change.path for answer in answered.answers for change in answer.row.changes}
    return bool(paths & {"global_batch", "seq_len"})


def signed_seconds(seconds: float) -> str:
    """``+1.2 s``, ``-340 ms``."""
    return f"{'+' if seconds > 0 else '-'}{format_seconds(abs(seconds))}"


def signed_percent(share: float) -> str:
    """``+12.3 %``, ``-4.0 %``."""
    return f"{'-' if share < 0 else '+'}{percent(abs(share))}"


def moved_text(moved: Moved | None) -> str:
    """The term that moved most, with its seconds."""
    if moved is None:
        return "nothing moves"
    return f"{moved.term.replace('_', ' ')} {signed_seconds(moved.seconds)}"


def speed_text(baseline: PricedPlan, now: PricedPlan) -> str:
    """Relative throughput against the baseline: ``+12.3 %``."""
    share = tokens_per_s(now) / tokens_per_s(baseline) - 1
    return "as fast" if abs(share) < ROUNDING else signed_percent(share)


def fits_text(priced: PricedPlan) -> str:
    """Excess of the worst device; empty where the plan fits."""
    if priced.prediction.feasible:
        return ""
    worst = priced.excess[0]
    return f"over by {format_bytes(worst.excess_bytes)} of {worst.tier} on stage {worst.stage}"


def difference_text(answer: Answer) -> str:
    """Changes of re-planning, in a few words."""
    if answer.best is None:
        return f"nothing: {answer.best_why}"
    if answer.kept:
        return "the plan as it is"
    words = [str(item) for item in answer.difference]
    return ", ".join(words) or "the plan as it is"


def gain_text(answer: Answer) -> str:
    """The gain of re-planning over the same plan."""
    if answer.gain is None:
        return ""
    return "none" if answer.kept or abs(answer.gain) < ROUNDING else signed_percent(answer.gain)


def shown_terms(predictions: list[Prediction]) -> list[str]:
    """Terms with a visible share of any prediction, largest first."""
    names = list(dict.fromkeys(name for p in predictions for name in p.breakdown_s))
    largest = {n: max(p.breakdown_s.get(n, 0.0) for p in predictions) for n in names}
    least = 1e-4 * max(p.step_time_s for p in predictions)
    return sorted((n for n in names if largest[n] > least), key=lambda n: (-largest[n], n))
