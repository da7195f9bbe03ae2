"""A what-if answer as a picture: bars of terms, or curves."""

from __future__ import annotations

from typing import Any

from ....planner.what_if.answer import Answer, PricedPlan
from ....spec.units import format_seconds
from ...html.svg import COLOURS
from ...what_if.document import swept_path
from ...what_if.rows import (
    change_text,
    row_name,
    shown_terms,
    swept_change,
    tokens_per_s,
    work_differs,
)
from ...what_if.what_if import WhatIf
from .canvas import (
    FONT_SIZE,
    GREY,
    Picture,
    figure,
    label,
    scaled_seconds,
    term_colour,
    term_label,
    title,
)

SAME, BEST = COLOURS[1], COLOURS[2]
LONGEST_TITLE = 90


def what_if_picture(result: WhatIf) -> Picture:
    """Draw curves of a sweep, or the terms of both answers."""
    picture: Picture = _bars(result) if result.question.sweep is None else _curves(result)
    return picture


def _bars(result: WhatIf) -> Any:
    answer = result.answers[0]
    named = [("baseline", result.baseline), ("same plan", answer.same), ("re-planned", answer.best)]
    rows = [(name, priced) for name, priced in named if priced is not None]
    made, axes = figure(8.5, 1.2 + 0.5 * len(rows))
    factor, unit = scaled_seconds(max(priced.step_time_s for _, priced in rows))
    starts = [0.0] * len(rows)
    for term in shown_terms([priced.prediction for _, priced in rows]):
        sizes = [factor * max(0.0, p.prediction.breakdown_s.get(term, 0.0)) for _, p in rows]
        colour, opacity = term_colour(term)
        axes.barh(
            range(len(rows)), sizes, left=starts, color=colour, alpha=opacity, height=0.6,
            label=term_label(term),
        )  # fmt: skip
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for row, (_, priced) in enumerate(rows):
        axes.text(starts[row], row, " " + _step_text(priced), va="center", fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.22 * max(starts))
    label(axes, f"{unit} of a step")
    title(axes, _short(", ".join(change_text(change) for change in answer.row.changes)))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=FONT_SIZE - 1, frameon=False)
    return made


def _step_text(priced: PricedPlan) -> str:
    over = "" if priced.prediction.feasible else ", does not fit"
    return format_seconds(priced.step_time_s) + over


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"


def _curves(result: WhatIf) -> Any:
    answers = sorted(result.answers, key=lambda answer: _order(result, answer))
    rates = work_differs(result)
    most = max(p.step_time_s for a in answers for p in (a.same, a.best, result.baseline) if p)
    factor, unit = (1e-3, "thousand tokens/s") if rates else scaled_seconds(most)
    made, axes = figure(7.5, 3.6)

    def amount(priced: PricedPlan) -> float:
        return factor * (tokens_per_s(priced) if rates else priced.step_time_s)

    for name, colour, side in (("same plan", SAME, "same"), ("re-planned", BEST, "best")):
        points = [(row, getattr(answer, side)) for row, answer in enumerate(answers)]
        there = [(row, priced) for row, priced in points if priced is not None]
        values = [amount(priced) for _, priced in there]
        places = [row for row, _ in there]
        width = 5.0 if side == "same" else 2.0  # both show where they are equal
        axes.plot(places, values, color=colour, linewidth=width, alpha=0.55 + 0.4 * (width < 3))
        fits = [p.prediction.feasible for _, p in there]
        faces = [colour if fit else "white" for fit in fits]
        axes.scatter(places, values, s=34, c=faces, edgecolors=colour, zorder=3)
        axes.plot([], [], color=colour, linewidth=width, marker="o", label=name)
    base = amount(result.baseline)
    axes.axhline(base, color=GREY, linestyle="--", linewidth=1, label="baseline")
    if any(p is not None and not p.prediction.feasible for a in answers for p in (a.same, a.best)):
        axes.scatter([], [], s=34, c="white", edgecolors=GREY, label="does not fit")
    _name_values(axes, [row_name(result, answer) for answer in answers])
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GREY, alpha=0.2)
    label(axes, swept_path(result), unit if rates else f"{unit} of a step")
    title(axes, f"{result.baseline.plan.model.name}: what if {swept_path(result)} were …")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=FONT_SIZE - 1, frameon=False)
    return made


def _order(result: WhatIf, answer: Answer) -> tuple[float, int]:
    now = swept_change(result, answer).now
    return (0.0 if isinstance(now, str) else float(now), result.answers.index(answer))


def _name_values(axes: Any, names: list[str]) -> None:
    every = -(-len(names) // 10)
    places = range(0, len(names), every)
    axes.set_xticks(list(places), [names[position] for position in places])
