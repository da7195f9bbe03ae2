"""The page's view of two plans: terminal text, bars on one scale."""

from __future__ import annotations

from typing import Any

from ...planner.what_if.plan_difference import Difference
from .comparison import Comparison, ComparisonSide
from .comparison_text import compared, comparison_tables, verdict
from .report_text import ROUNDING, question_text, shape_text
from .report_view import figures, memory_bar_view


def comparison_view(comparison: Comparison) -> dict[str, Any]:
    """The view of a comparison.

    Returns:
        ``{compared, verdict, sides, questions, decisions, tables}``; a side's ``terms`` are shares
        of the longer one.
    """
    return {
        "compared": compared(comparison),
        "verdict": verdict(comparison),
        "sides": [_side(comparison, number) for number in (0, 1)],
        "questions": _rows(comparison.questions),
        "decisions": _rows(comparison.decisions),
        "tables": [
            {"title": title, "heads": list(heads), "rows": [list(row) for row in rows]}
            for title, heads, rows in comparison_tables(comparison)
        ],
    }


def _side(comparison: Comparison, number: int) -> dict[str, Any]:
    side: ComparisonSide = (comparison.first, comparison.second)[number]
    longest = max(comparison.whole_s)
    seconds = [(p.term, (p.first, p.second)[number]) for p in comparison.terms]
    return {
        "name": side.name,
        "title": question_text(side.report.plan),
        "shape": shape_text(side.report.plan),
        "figures": figures(side.report),
        "memory": memory_bar_view(side.peak_memory_row),
        "feasible": side.prediction.feasible,
        "terms": [
            {"term": term, "share": value / longest}
            for term, value in seconds
            if value > ROUNDING * longest
        ],
    }


def _rows(differences: tuple[Difference, ...]) -> list[list[str]]:
    return [[d.axis, d.was, d.now] for d in differences]
