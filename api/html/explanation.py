"""An explanation as HTML for a notebook, without scripts, escaped."""

from __future__ import annotations

from ...spec.report.report import MEMORY_TERMS
from ...spec.units import format_bytes, format_seconds
from ..views.explanation import Explanation
from ..views.report_text import ROUNDING, interval_text, percent, shape_text, stage_text
from .report import html_table
from .text import escape

MAX_STAGES = 16


def explanation_html(explanation: Explanation) -> str:
    """Both tables, with their sums."""
    report, prediction = explanation.report, explanation.report.prediction
    head = (
        f"<p><b>{escape(report.plan.model.name)}</b>: {escape(shape_text(report.plan))}<br>"
        f"step {escape(interval_text(prediction))}, "
        f"as stage {explanation.critical_stage} spends it</p>"
    )
    rows = [
        [
            escape(str(row["term"]).replace("_", " ")),
            format_seconds(row["seconds"]),
            percent(row["share"]),
            escape(str(row["meaning"])),
        ]
        for row in explanation.terms
        if abs(row["share"]) > ROUNDING
    ]
    rows.append(["<b>sum</b>", format_seconds(prediction.step_time_s), percent(1.0), ""])
    times = html_table(("term", "seconds", "share", "what it is"), rows)
    sent = f"<p>{escape(explanation.sent_text)}</p>" if explanation.sent_text else ""
    overlaps = "".join(f"<p>{escape(line)}</p>" for line in explanation.overlap_lines)
    return f"<div>{head}{times}{overlaps}{sent}{_memory(explanation)}</div>"


def _memory(explanation: Explanation) -> str:
    every = explanation.report.prediction.memory
    shown = every[:MAX_STAGES]
    names = [*MEMORY_TERMS, *dict.fromkeys(n for r in shown for n in r.by if n not in MEMORY_TERMS)]
    used = [name for name in names if any(row.by.get(name) for row in shown)]
    heads = ("memory of a device", *(stage_text(row, every) for row in shown))
    rows = [[escape(name), *(format_bytes(row.by.get(name, 0)) for row in shown)] for name in used]
    rows.append(["<b>sum</b>", *(format_bytes(row.reserved_bytes) for row in shown)])
    rows.append(["capacity", *(format_bytes(row.capacity_bytes) for row in shown)])
    more = len(every) - len(shown)
    return html_table(heads, rows) + (f"<p>and {more} stages more</p>" if more else "")
