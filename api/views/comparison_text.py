"""Two plans side by side as lines and tables of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...costmodel.explain.compare import TermPair
from ...spec.units import GIB, MIB, format_count, format_number, format_seconds
from ..what_if.rows import signed_seconds
from .report_text import ROUNDING, interval_text, memory_text, mfu_text, percent, shape_text

if TYPE_CHECKING:
    from .comparison import Comparison, ComparisonSide

TableRow = tuple[str, str, str, str]


def compared(comparison: Comparison) -> str:
    """Name what is compared and what differs; '' for two answers to one question."""
    axes = [row.axis for row in comparison.questions]
    if not axes:
        return ""
    plans = [side.report.plan for side in (comparison.first, comparison.second)]
    names = [plan.model.name for plan in plans]
    if "model" in axes:
        sizes = [format_count(plan.model.param_count(plan.workload.seq_len)) for plan in plans]
        what = " and ".join(
            f"{n} ({size} parameters)" for n, size in zip(names, sizes, strict=True)
        )
        what = f"two models, {what}"
    else:
        what = f"two questions of {names[0]}"
    measure = "tokens a second"
    if comparison.unit != "step":
        steps = " and ".join(format_count(plan.workload.tokens_per_step) for plan in plans)
        measure += f", for their steps are of {steps} tokens"
    return f"compared: {what}, by {measure}; differs: {', '.join(axes)}"


def verdict(comparison: Comparison) -> str:
    """Name the plan of more tokens a second, and the deciding term."""
    share = comparison.speed - 1
    if abs(share) < ROUNDING:
        return "both are equally fast"
    faster, slower = (
        (comparison.second, comparison.first)
        if share > 0
        else (comparison.first, comparison.second)
    )
    times = max(comparison.speed, 1 / comparison.speed)
    more = f"{percent(times - 1)} more" if times < 2 else f"{format_number(times, 3)} times as many"
    most = max(comparison.terms, key=lambda pair: pair.by * (-1 if share > 0 else 1))
    seconds = format_seconds(abs(most.by))
    term = most.term.replace("_", " ")
    fits = "" if faster.prediction.feasible else ", but does not fit"
    return (
        f"{faster.name} does {more} tokens a second {'than' if times < 2 else 'as'} "
        f"{slower.name}{fits}; "
        f"most of it: {seconds} a {comparison.unit} less of {term}"
    )


def differences(comparison: Comparison) -> list[str]:
    """List differing parts of the questions and the plans."""
    both = ("asked otherwise", comparison.questions), ("decided otherwise", comparison.decisions)
    return [f"{title}: " + ", ".join(map(str, rows)) for title, rows in both if rows]


def side_text(side: ComparisonSide) -> str:
    """A plan and its prediction in one line."""
    prediction = side.prediction
    fits = "" if prediction.feasible else ", does not fit"
    return (
        f"{shape_text(side.report.plan)}; step {interval_text(prediction)}, "
        f"{format_number(side.tokens_per_s)} tokens/s, {mfu_text(prediction)}, "
        f"peak {memory_text(side.peak_memory_row)} on stage {side.peak_memory_row.stage}{fits}"
    )


def comparison_tables(comparison: Comparison) -> list[tuple[str, tuple[str, ...], list[TableRow]]]:
    """Build tables of seconds and bytes by term: title, heads, rows."""
    names = (comparison.first.name, comparison.second.name)
    rows = (comparison.first.peak_memory_row, comparison.second.peak_memory_row)
    unit, unit_name = (GIB, "GiB") if max(r.capacity_bytes for r in rows) >= GIB else (MIB, "MiB")
    memory = sum(p.first for p in comparison.memory), sum(p.second for p in comparison.memory)

    def amount(size: float) -> str:
        return f"{size / unit:.3f}"

    def signed(size: float) -> str:
        return f"{size / unit:+.3f}"

    return [
        (
            f"seconds a {comparison.unit}",
            ("term", *names, "difference"),
            _rows(comparison.terms, comparison.whole_s, format_seconds, signed_seconds),
        ),
        (
            f"memory of the fullest device, in {unit_name}",
            ("term", *names, "difference"),
            _rows(comparison.memory, memory, amount, signed),
        ),
    ]


def _rows(
    pairs: list[TermPair],
    whole: tuple[float, float],
    amount: Callable[[float], str],
    signed: Callable[[float], str],
) -> list[TableRow]:
    """One row per term worth showing, and their sum."""
    least = ROUNDING * max(whole)
    sums = TermPair(term="sum", first=whole[0], second=whole[1])
    shown = [p for p in pairs if max(p.first, p.second) > least]
    return [
        (
            pair.term.replace("_", " "),
            amount(pair.first),
            amount(pair.second),
            signed(pair.by) if abs(pair.by) > least else "",
        )
        for pair in (*shown, sums)
    ]
