"""A report as HTML for a notebook, without scripts, escaped."""

from __future__ import annotations

from ...spec.report.report import Alternative, MemoryRow, Report
from ..views.answer_text import (
    advice_text,
    common_stack_text,
    cost_text,
    largest_text,
    training_text,
)
from ..views.report_text import (
    cluster_text,
    interval_text,
    memory_text,
    mfu_text,
    peak_memory_row,
    percent,
    question_text,
    search_text,
    shape_text,
    sources_text,
    terms,
    tokens_text,
)
from ..views.stage_table import StageRow, shortened, stage_rows
from .text import escape

CELL = "padding:2px 10px 2px 0;text-align:left"
HEADS = ("stage", "layers", "devices", "tp", "dp", "shard", "recompute", "memory")


def report_html(report: Report) -> str:
    """Headline, stages, terms, rivals and assumptions of a report."""
    prediction = report.prediction
    full = peak_memory_row(prediction)
    verdict = "" if prediction.feasible else " <b>does not fit</b>;"
    parts = [
        f"<p><b>{escape(question_text(report.plan))}</b><br>on {escape(cluster_text(report))}</p>",
        f"<p>{escape(shape_text(report.plan))}<br>step {escape(interval_text(prediction))};"
        f"{verdict} {escape(mfu_text(prediction))}; {escape(tokens_text(prediction))}; "
        f"peak {escape(memory_text(full))} on stage {full.stage}<br>{escape(_answer(report))}</p>",
        _stages(report),
        _terms(report),
        _advice(report),
        _alternatives(report),
        _assumptions(report),
    ]
    return f'<div style="font-family:sans-serif">{"".join(parts)}</div>'


def _answer(report: Report) -> str:
    texts = [cost_text(report.prediction), training_text(report.prediction)]
    if report.search is not None and report.search.largest is not None:
        texts.append(largest_text(report.search.largest))
    return "; ".join(text for text in [*texts, search_text(report)] if text)


def html_table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    """Table whose cells are HTML already."""
    head = "".join(f'<th style="{CELL}">{escape(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _stages(report: Report) -> str:
    first, last, between = shortened(stage_rows(report.plan, report.prediction))
    rows = [_cells(row) for row in first]
    if between:
        rows.append(["…", f"{between} more rows", *[""] * 6])
    return html_table(HEADS, rows + [_cells(row) for row in last])


def _cells(row: StageRow) -> list[str]:
    texts = (row.stage, row.layers, row.devices, row.tp, row.dp, row.shard, row.recompute)
    memory = "" if row.memory is None else _bar(row.memory) + escape(memory_text(row.memory))
    return [*(escape(text) for text in texts), memory]


def _bar(row: MemoryRow) -> str:
    part = row.reserved_bytes / max(1, row.capacity_bytes)
    colour = "#c62828" if part > 1 else "#f9a825" if part > 0.9 else "#2e7d32"
    label = f"{part * 100:.0f} % of the memory reserved"
    return (
        f'<span role="img" aria-label="{label}" style="display:inline-block;width:80px;height:10px;'
        f'border:1px solid #888;margin-right:6px"><span style="display:block;height:10px;'
        f'width:{min(100.0, part * 100):.0f}%;background:{colour}"></span></span>'
    )


def _terms(report: Report) -> str:
    rows = [
        [escape(name), f"{seconds:.4g} s", percent(part)]
        for name, seconds, part in terms(report.prediction)
    ]
    note = f"<p>prices: {escape(sources_text(report))}; {escape(report.provenance.stack)}</p>"
    return html_table(("where the step goes", "seconds", "share"), rows) + note


def _alternatives(report: Report) -> str:
    rows = [[escape(r.lost_by), escape(shape_text(r.plan)), _marks(r)] for r in report.alternatives]
    return html_table(("against this plan", "other plan", ""), rows) if rows else ""


def _marks(rival: Alternative) -> str:
    marks = {"fastest": rival.fastest, "simplest": rival.simplest}
    return ", ".join(name for name, is_set in marks.items() if is_set)


def _advice(report: Report) -> str:
    """Advice, and the answer for the nearest common stack."""
    lines = [f"advice: {advice_text(item)}" for item in report.advice]
    if report.common_stack is not None:
        step_s = report.prediction.step_time_s
        lines.append(f"with {common_stack_text(report.common_stack, step_s)}")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _assumptions(report: Report) -> str:
    rows = [
        [escape(note.path), escape(str(note.value)), escape(note.why)]
        for note in report.assumptions
    ]
    if not rows:
        return ""
    table = html_table(("assumed", "value", "why"), rows)
    return f"<details><summary>{len(rows)} assumptions</summary>{table}</details>"
