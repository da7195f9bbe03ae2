"""A report of ``plan`` or ``simulate`` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.report.report import Assumption, Report
from ...spec.units import format_seconds
from ..problem.lossy import LOSSY_PREFIX
from ..views.answer_text import (
    advice_text,
    common_stack_text,
    cost_text,
    largest_text,
    sensitivity_parts,
    tie_text,
    training_text,
)
from ..views.report_text import (
    cluster_text,
    excess_lines,
    interval_text,
    memory_text,
    mfu_text,
    peak_memory_row,
    percent,
    question_text,
    search_text,
    shape_text,
    sources_text,
    stage_text,
    terms,
    tokens_text,
)
from ..views.stage_table import StageRow, shortened, stage_rows
from .console import columns, memory_bar


def print_report(out: Console, report: Report, rule: MemoryRule, next_steps: Sequence[str]) -> None:
    """Print a report: time, stages, terms, rivals and assumptions."""
    for note in report.assumptions:
        if note.path.startswith(f"{LOSSY_PREFIX}."):
            _line(out, "lossy: ", f"{note.value} ({note.why})")
    _print_head(out, report, rule)
    _print_stages(out, report)
    _print_terms(out, report)
    _print_alternatives(out, report)
    print_assumptions(out, report.assumptions)
    if next_steps:
        _list(out, "next: ", next_steps)


def _line(out: Console, label: str, text: str, style: str = "") -> None:
    line = Text(label, style="bold")
    line.append(text, style=style or "not bold")
    out.print(line, overflow="fold")


def _list(
    out: Console, label: str, parts: Sequence[str], between: str = " | ", style: str = ""
) -> None:
    """Print parts in few lines, broken between parts only."""
    lines, used = [label], len(label)
    for part in parts:
        glue = between if lines[-1] != label and lines[-1].strip() else ""
        if used + len(glue) + len(part) > out.width and glue:
            lines.append("  " + part)
        else:
            lines[-1] += glue + part
        used = len(lines[-1])
    for number, line in enumerate(lines):
        text = Text(line, style=style)
        if number == 0:
            text.stylize("bold", 0, len(label))
        out.print(text, soft_wrap=True)  # a part may be a command to copy


def _print_head(out: Console, report: Report, rule: MemoryRule) -> None:
    prediction = report.prediction
    full = peak_memory_row(prediction)
    _line(out, "", question_text(report.plan))
    _line(out, "on ", cluster_text(report))
    if text := search_text(report):
        _line(out, "search: ", text)
    if report.search is not None and report.search.largest is not None:
        _line(out, "largest: ", largest_text(report.search.largest))
    _line(out, "plan: ", shape_text(report.plan))
    figures = [
        f"{interval_text(prediction)} (80 %)",
        mfu_text(prediction),
        tokens_text(prediction),
        f"peak {memory_text(full)} on {stage_text(full, prediction.memory)}",
    ]
    style = "bold green" if prediction.feasible else "bold red"
    _list(out, "step: ", figures, between="   ", style=style)
    if text := cost_text(prediction):
        _line(out, "cost: ", text, style)
    if text := training_text(prediction):
        _line(out, "training: ", text, style)
    for line in excess_lines(prediction.memory, rule):
        _line(out, "does not fit: ", line, "red")


def _print_stages(out: Console, report: Report) -> None:
    names = ("stage", "layers", "devices", "tp", "dp", "shard", "recompute", "memory", "")
    table = columns(*names, right=("stage",))
    first, last, between = shortened(stage_rows(report.plan, report.prediction))
    for row in first:
        table.add_row(*_cells(row))
    if between:
        table.add_row("…", f"{between} more rows", *[""] * 7)
    for row in last:
        table.add_row(*_cells(row))
    out.print(table)


def _cells(row: StageRow) -> list[str | Text]:
    memory: list[str | Text] = ["", ""]
    if row.memory is not None:
        memory = [memory_bar(row.memory), memory_text(row.memory)]
    return [
        row.stage, row.layers, row.devices, row.tp, row.dp, row.shard, row.recompute, *memory
    ]  # fmt: skip


def _print_terms(out: Console, report: Report) -> None:
    prediction = report.prediction
    parts = [f"{name} {format_seconds(s)} ({percent(f)})" for name, s, f in terms(prediction)]
    _list(out, "where the step goes: ", parts)
    if parts := sensitivity_parts(report):
        _list(out, "1 % more of: ", parts)
    _line(out, "prices: ", f"{sources_text(report)}; {report.provenance.stack}")


def _print_alternatives(out: Console, report: Report) -> None:
    if report.search is None:
        return
    plain = report.search.tie_set.simplest == report.plan.hash
    for item in report.advice:
        _line(out, "advice: ", advice_text(item), "yellow")
    if report.common_stack is not None:
        step_s = report.prediction.step_time_s
        _line(out, "with ", common_stack_text(report.common_stack, step_s))
    for rival in report.alternatives:
        if rival.fastest:
            _line(out, "fastest: ", f"{rival.lost_by}: {shape_text(rival.plan)}")
    if others := [rival for rival in report.alternatives if not rival.fastest]:
        _line(out, "lost to this plan:", "")
        table = columns("", "")
        table.show_header = False
        for rival in others:
            mark = " (the simplest within the model's error)" if rival.simplest else ""
            table.add_row(f"  {rival.lost_by}", shape_text(rival.plan) + mark)
        out.print(table)
    if plain:
        _line(out, "", "this plan is the simplest of those within the model's error")
    _line(out, "ties: ", tie_text(report.search))


def print_assumptions(out: Console, assumptions: Sequence[Assumption]) -> None:
    """Print assumptions in the report's order, the fabric first."""
    if not assumptions:
        return
    _line(out, "assumed:", "")
    table = columns("", "", "")
    table.show_header = False
    for note in assumptions:
        table.add_row(f"  {note.path}", _shown(note.value), note.why)
    out.print(table)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
