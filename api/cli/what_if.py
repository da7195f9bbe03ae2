"""``plan what-if``: a changed setting, the plan kept and re-planned."""

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


def what_if_command(flags: dict[str, Any]) -> None:
    """Answer the question of the flags.

    Raises:
        InputError: no usable plan, key, value, cluster or file.
    """
    from ...planner.solve.garbage_collection import garbage_collection_paused
    from ..planning.report import memory_rule
    from ..what_if.inputs import question_of, with_traces_read

    check_targets(json=flags["json_target"], plot=flags["plot"])
    _check_plot(flags["plot"])
    if flags["plan_file"] is None:
        near = "plan what-if plan.json --set inter_node.bandwidth=2x"
        raise InputError("PLAN.json", "nothing", "a plan file", near)
    memory_rule(flags["oom_risk"])
    sweep = flags["sweep"] or None
    question = question_of(flags["sets"], sweep, flags["add"], flags["scale"])
    question = with_traces_read(question)
    with garbage_collection_paused(leaves=True):
        answer = _answer(flags, question)
        _emit(answer, flags)


def _answer(flags: dict[str, Any], question: Any) -> WhatIf:
    from ..frameworks.plan_sources import BESIDE
    from ..planning.report import memory_rule
    from ..problem.resolve import Inputs
    from ..what_if.what_if import split_deadline, what_if
    from .frameworks.files import plan_document

    document = plan_document(flags["plan_file"], flags)
    kept = {name: value for name, value in typed_inputs(flags).items() if name not in BESIDE}
    inputs = document.inputs(Inputs(**kept))
    risk = memory_rule(document.risk(flags["oom_risk"])).risk
    state = {"row": ""}
    with ProgressLine("searching", "shapes") as line:

        def progress(seen: int, shapes: int, best_s: float) -> None:
            best = f"best {best_s:.4g} s" if best_s < float("inf") else "nothing fits yet"
            line(seen, shapes, state["row"] + best)

        def row_done(done: int, rows: int) -> None:
            state["row"] = f"row {done + 1} of {rows}, " if rows > 1 else ""

        clock = None if flags["deadline"] is None else split_deadline(flags["deadline"])
        return what_if(document.plan, question, inputs, risk, clock, progress, row_done)


def _check_plot(target: str | None) -> None:
    if target and not target.endswith(PLOTS):
        near = str(Path(target).with_suffix(".svg"))
        raise InputError("--plot", target, f"a file ending in {' or '.join(PLOTS)}", near)


def _emit(answer: WhatIf, flags: dict[str, Any]) -> None:
    from ..what_if.document import what_if_document

    sweep = answer.question.sweep
    if sweep is not None and len(answer.answers) < len(sweep.values):
        note(f"interrupted: {len(answer.answers)} of {len(sweep.values)} values are answered")
    if flags["plot"]:
        from ..html.what_if_svg import what_if_page, what_if_svg

        drawing = what_if_page(answer) if flags["plot"].endswith(".html") else what_if_svg(answer)
        write_file(flags["plot"], drawing)

    def show(out: Console) -> None:
        from ..terminal.what_if import print_what_if

        print_what_if(out, answer, _next_steps(flags))

    emit(what_if_document(answer), flags["json_target"], show)


def _next_steps(flags: dict[str, Any]) -> list[str]:
    if flags["plot"]:
        return [f"open {flags['plot']}"]
    ending = "row" if flags["sweep"] else "term"
    return [f"the same with --plot what_if.svg, a picture with a bar or point a {ending}"]
