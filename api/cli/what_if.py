"""``plan what-if``: change something, price the same plan, search again, say which term moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from .flags import typed_inputs
from .output import ProgressLine, check_targets, emit, note, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from ..what_if.what_if import WhatIf

PLOTS = (".svg", ".html")


def what_if_command(given: dict[str, Any]) -> None:
    """Answer the question that the flags ask.

    Raises:
        InputError: no usable plan, key, value, cluster or file.
    """
    from ..planning.plan_and_simulate import garbage_collection_paused, memory_rule
    from ..what_if.inputs import question_of

    check_targets(json=given["json_target"], plot=given["plot"])
    _check_plot(given["plot"])
    if given["plan_file"] is None:
        near = "plan what-if plan.json --set inter_node.bandwidth=2x"
        raise InputError("PLAN.json", "nothing", "a plan file", near)
    rule = memory_rule(given["oom_risk"])
    sweep = given["sweep"] or None
    question = question_of(given["sets"], sweep, given["add"], given["scale"])
    with garbage_collection_paused(leaves=True):
        found = _answered(given, question, rule.risk)
        _emit(found, given)


def _answered(given: dict[str, Any], question: Any, risk: float) -> WhatIf:
    from ..problem.plan_files import read_plan
    from ..problem.resolve import Inputs
    from ..what_if.what_if import split_deadline, what_if

    plan = read_plan(given["plan_file"])
    inputs = Inputs(**typed_inputs(given))
    state = {"row": ""}
    with ProgressLine("searching", "shapes") as line:

        def progress(seen: int, shapes: int, best_s: float) -> None:
            best = f"best {best_s:.4g} s" if best_s < float("inf") else "nothing fits yet"
            line(seen, shapes, state["row"] + best)

        def row_done(done: int, rows: int) -> None:
            state["row"] = f"row {done + 1} of {rows}, " if rows > 1 else ""

        clock = None if given["deadline"] is None else split_deadline(given["deadline"])
        return what_if(plan, question, inputs, risk, clock, progress, row_done)


def _check_plot(target: str | None) -> None:
    if target and not target.endswith(PLOTS):
        near = str(Path(target).with_suffix(".svg"))
        raise InputError("--plot", target, f"a file ending in {' or '.join(PLOTS)}", near)


def _emit(found: WhatIf, given: dict[str, Any]) -> None:
    from ..what_if.document import what_if_document

    sweep = found.question.sweep
    if sweep is not None and len(found.answers) < len(sweep.values):
        note(f"interrupted: {len(found.answers)} of {len(sweep.values)} values are answered")
    if given["plot"]:
        from ..html.what_if_svg import what_if_page, what_if_svg

        drawing = what_if_page(found) if given["plot"].endswith(".html") else what_if_svg(found)
        write_file(given["plot"], drawing)

    def show(out: Console) -> None:
        from ..terminal.what_if import print_what_if

        print_what_if(out, found, _next_steps(given))

    emit(what_if_document(found), given["json_target"], show)


def _next_steps(given: dict[str, Any]) -> list[str]:
    if given["plot"]:
        return [f"open {given['plot']}"]
    ending = "row" if given["sweep"] else "term"
    return [f"the same with --plot what_if.svg, a picture with a bar or point a {ending}"]
