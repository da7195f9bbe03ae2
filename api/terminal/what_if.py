"""A what-if answer on a terminal: sweep table and bars, or terms."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...planner.what_if.answer import Answer, PricedPlan
from ...spec.units import format_seconds
from ..views.report_text import question_text, shape_text
from ..what_if.document import swept_path
from ..what_if.rows import (
    change_text,
    difference_text,
    fits_text,
    gain_text,
    moved_text,
    row_name,
    shown_terms,
    signed_seconds,
    speed_text,
    swept_change,
    tokens_per_s,
    tokens_text,
    value_text,
    work_differs,
)
from ..what_if.what_if import WhatIf
from .console import bar_cells, columns
from .plan import print_assumptions

BAR = 32
"""Cells of the longest bar."""


def print_what_if(out: Console, result: WhatIf, next_steps: Sequence[str]) -> None:
    """Print the change, both answers, the moved term and a picture."""
    base = result.baseline
    out.print(question_text(base.plan), overflow="fold")
    out.print(f"plan: {shape_text(base.plan)}", overflow="fold")
    over = fits_text(base)
    over = f", does not fit: {over}" if over else ""
    out.print(f"baseline: {format_seconds(base.step_time_s)} a step, {tokens_text(base)} tokens/s"
              f"{over}")  # fmt: skip
    if result.question.sweep is None:
        _print_one(out, result, result.answers[0])
    else:
        _print_sweep(out, result)
    print_assumptions(out, result.assumptions)
    for step in next_steps:
        out.print(Text.assemble(("next: ", "bold"), step), soft_wrap=True)


def _print_one(out: Console, result: WhatIf, answer: Answer) -> None:
    out.print()
    for change in answer.row.changes:
        out.print(Text(f"what if {change_text(change)}", style="bold"), overflow="fold")
    _print_answers(out, result, answer)
    out.print()
    _print_terms(out, result, answer)


def _print_answers(out: Console, result: WhatIf, answer: Answer) -> None:
    table = columns("", "step", "tokens/s", "to baseline", "", right=("step", "tokens/s"))
    base = result.baseline
    table.add_row("baseline", format_seconds(base.step_time_s), tokens_text(base), "", "")
    same, best = answer.same, answer.best
    if same is None:
        table.add_row("same plan", "-", "-", "", f"impossible: {answer.same_why}")
    else:
        table.add_row(*_cells("same plan", same, base, _same_words(answer)))
    if best is None:
        table.add_row("re-planned", "-", "-", "", f"impossible: {answer.best_why}")
    else:
        table.add_row(*_cells("re-planned", best, base, _best_words(answer)))
    out.print(table)


def _cells(name: str, priced: PricedPlan, base: PricedPlan, words: str) -> list[str | Text]:
    style = "" if priced.prediction.feasible else "red"
    seconds, speed = format_seconds(priced.step_time_s), speed_text(base, priced)
    return [name, seconds, tokens_text(priced), speed, Text(words, style=style)]


def _same_words(answer: Answer) -> str:
    words = [moved_text(answer.moved)]
    if answer.same is not None:
        if over := fits_text(answer.same):
            words.insert(0, f"does not fit: {over}")
        if answer.same_difference:
            words.append(", ".join(map(str, answer.same_difference)))
        if answer.same.idle_devices:
            words.append(f"{answer.same.idle_devices} devices idle{_idle_why(answer.same)}")
    return "; ".join(words)


def _idle_why(same: PricedPlan) -> str:
    """Why devices of the one kind that there is stay idle."""
    if len(same.plan.cluster.groups) > 1:
        return ""
    return f", for no larger dp splits {same.plan.workload.global_batch} samples legally"


def _best_words(answer: Answer) -> str:
    if answer.kept:
        why = f" ({answer.best_why})" if answer.best_why else ""
        words = f"keeps the plan: nothing faster was found{why}"
    elif answer.same is None:
        words = difference_text(answer)
    else:
        fits = "" if answer.same.prediction.feasible else "fits; "
        words = f"{fits}{gain_text(answer)} over the same plan: {difference_text(answer)}"
    if answer.best is not None and answer.best.idle_devices:
        words += f"; {answer.best.idle_devices} devices idle"
    return words


def _print_terms(out: Console, result: WhatIf, answer: Answer) -> None:
    """Print seconds of each term in the baseline and both answers."""
    named = [("baseline", result.baseline), ("same plan", answer.same)]
    if not answer.kept:
        named.append(("re-planned", answer.best))
    shown = [(name, priced.prediction) for name, priced in named if priced is not None]
    heads = [name for name, _ in shown]
    table = columns("term", *heads, "moved", right=(*heads, "moved"))
    least_s = 1e-9 * result.baseline.step_time_s
    for term in shown_terms([prediction for _, prediction in shown]):
        cells = [format_seconds(p.breakdown_s.get(term, 0.0)) for _, p in shown]
        by = _by(result.baseline, answer.same or answer.best, term)
        most = answer.moved is not None and answer.moved.term == term
        style = "bold" if most else ""
        words = signed_seconds(by) if abs(by) > least_s else ""
        table.add_row(term.replace("_", " "), *cells, words, style=style)
    out.print(table)


def _by(base: PricedPlan, now: PricedPlan | None, term: str) -> float:
    if now is None:
        return 0.0
    before, after = (p.prediction.breakdown_s.get(term, 0.0) for p in (base, now))
    return after - before


def _print_sweep(out: Console, result: WhatIf) -> None:
    out.print()
    first = [c for c in result.answers[0].row.changes if c.path != swept_path(result)]
    fixed = [c for c in first if all(c in answer.row.changes for answer in result.answers)]
    if fixed:
        text = "in every row: " + ", ".join(map(change_text, fixed))
        out.print(Text(text, style="bold"), overflow="fold")
    path = swept_path(result)
    out.print(Text(f"what if {path} were not {_base_text(result)} but", style="bold"))
    heads = ("", "same plan", "moved", "re-planned", "tokens/s", "gain", "change")
    table = columns(*heads, right=("same plan", "re-planned", "tokens/s"))
    for answer in result.answers:
        table.add_row(*_sweep_cells(result, answer))
    out.print(table)
    _print_remarks(out, result)
    out.print()
    _print_bars(out, result)


def _base_text(result: WhatIf) -> str:
    change = swept_change(result, result.answers[0])
    return value_text(change.path, change.was)


def _sweep_cells(result: WhatIf, answer: Answer) -> list[str | Text]:
    same, best = answer.same, answer.best
    mark = "" if same is None or same.prediction.feasible else "*"
    return [
        row_name(result, answer),
        "-" if same is None else format_seconds(same.step_time_s) + mark,
        "" if same is None else moved_text(answer.moved),
        "-" if best is None else format_seconds(best.step_time_s),
        "-" if best is None else tokens_text(best),
        gain_text(answer),
        "" if best is None else difference_text(answer),
    ]


def _print_remarks(out: Console, result: WhatIf) -> None:
    for answer in result.answers:
        name = row_name(result, answer)
        if answer.same is None:
            out.print(f"  {name}: the same plan cannot be: {answer.same_why}", overflow="fold")
        elif over := fits_text(answer.same):
            out.print(f"  * {name}: the same plan is {over}", style="red", overflow="fold")
        if answer.best_why:
            what = "nothing is planned" if answer.best is None else "the plan is kept"
            out.print(f"  {name}: {what}: {answer.best_why}", overflow="fold")


def _print_bars(out: Console, result: WhatIf) -> None:
    """Print one bar per row: step seconds, or tokens a second."""
    rates = work_differs(result)
    what = "tokens/s (longer is faster)" if rates else "seconds a step (shorter is faster)"
    out.print(Text(what, style="bold"))
    named = [("baseline", "", result.baseline)]
    for answer in result.answers:
        name = row_name(result, answer)
        named += [(name, "same", answer.same)] if answer.same is not None else []
        if answer.best is not None and not answer.kept:
            named.append((name, "re-planned", answer.best))
    amounts = [tokens_per_s(p) if rates else p.step_time_s for _, _, p in named]
    most = max(amounts)
    table = columns("", "", "", "")
    table.show_header = False
    for (name, which, priced), amount in zip(named, amounts, strict=True):
        text = tokens_text(priced) if rates else format_seconds(priced.step_time_s)
        style = "red" if not priced.prediction.feasible else _style(which)
        table.add_row(name, which, Text(_bar(amount / most), style=style), text)
    out.print(table)


def _style(which: str) -> str:
    return {"same": "yellow", "re-planned": "green"}.get(which, "")


def _bar(share: float) -> str:
    return bar_cells()[0] * max(1, round(share * BAR))
