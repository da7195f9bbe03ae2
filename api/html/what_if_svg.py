"""A what-if answer as SVG: term bars, or sweep lines.

Axes begin at zero, so that lengths compare. A sweep draws both answers as lines and the baseline
dashed; hollow points do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...planner.what_if.answer import Answer, PricedPlan
from ...spec.report.report import BREAKDOWN_TERMS
from ...spec.units import format_seconds
from ..what_if.document import swept_path
from ..what_if.rows import (
    change_text,
    row_name,
    shown_terms,
    swept_change,
    tokens_per_s,
    tokens_text,
    work_differs,
)
from ..what_if.what_if import WhatIf
from .svg import COLOURS, round_ticks, svg_head, svg_line, svg_text
from .text import escape

WIDTH, HEIGHT, LEFT, TOP, LEGEND = 620, 360, 90, 70, 200
"""Of the drawn area, and what stands left of, above and right of it; pixels."""
ROW, BAR = 64, 34
"""Of a bar's row, and the bar; pixels."""
TITLE = 95
"""Characters of a title that fit above a drawing."""
SAME, BEST = COLOURS[1], COLOURS[2]


def what_if_svg(result: WhatIf) -> str:
    """Draw the answer as SVG text."""
    parts = _bars(result) if result.question.sweep is None else _lines(result)
    return "\n".join([*parts, "</svg>", ""])


def what_if_page(result: WhatIf) -> str:
    """The drawing in a page of its own."""
    name = escape(result.baseline.plan.model.name)
    head = f'<!doctype html><meta charset="utf-8"><title>what if: {name}</title>'
    return f"{head}\n{what_if_svg(result)}"


def _title(result: WhatIf) -> str:
    changes = [change_text(change) for change in result.answers[0].row.changes]
    if result.question.sweep is not None:
        changes = [swept_path(result)]
    title = f"{result.baseline.plan.model.name}: what if {', '.join(changes)}"
    return title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"


def _bars(result: WhatIf) -> list[str]:
    """Seconds of each term, end to end: the baseline and both answers."""
    answer = result.answers[0]
    named = [("baseline", result.baseline), ("same plan", answer.same), ("re-planned", answer.best)]
    rows = [(name, priced) for name, priced in named if priced is not None]
    terms = shown_terms([priced.prediction for _, priced in rows])
    ticks = round_ticks(max(priced.step_time_s for _, priced in rows))
    bottom = TOP + ROW * len(rows)
    height = max(bottom + 60, TOP + 30 + 20 * len(terms))
    body = svg_head(LEFT + WIDTH + LEGEND, height, _title(result), 18)
    for tick in ticks:
        x = LEFT + WIDTH * tick / ticks[-1]
        body.append(svg_line((x, TOP, x, bottom), "#e4e4e4"))
        body.append(svg_text(x, bottom + 18, f"{tick:g}", "middle"))
    body.append(svg_text(LEFT + WIDTH / 2, bottom + 42, "seconds of a step", "middle", 14))
    for number, (name, priced) in enumerate(rows):
        body += _bar(TOP + ROW * number, name, priced, terms, ticks[-1])
    for number, term in enumerate(terms):
        y = TOP + 20 * number
        body.append(_box(LEFT + WIDTH + 22, y, 12, 12, term))
        body.append(svg_text(LEFT + WIDTH + 40, y + 11, term.replace("_", " "), "start"))
    return body


def _bar(top: float, name: str, priced: PricedPlan, terms: list[str], most: float) -> Iterator[str]:
    y = top + (ROW - BAR) / 2
    yield svg_text(LEFT - 8, y + BAR / 2 + 4, name, "end")
    x = float(LEFT)
    for term in terms:
        seconds = priced.prediction.breakdown_s.get(term, 0.0)
        width = WIDTH * max(0.0, seconds) / most
        yield _box(x, y, width, BAR, term, f"{term}: {format_seconds(seconds)}")
        x += width
    fits = "" if priced.prediction.feasible else " (does not fit)"
    yield svg_text(LEFT, y - 4, f"{format_seconds(priced.step_time_s)}{fits}", "start", 11)


def _box(x: float, y: float, width: float, height: float, term: str, tip: str = "") -> str:
    is_known_term = term in BREAKDOWN_TERMS
    number = BREAKDOWN_TERMS.index(term) if is_known_term else len(BREAKDOWN_TERMS)
    colour = COLOURS[number % len(COLOURS)]
    opacity = 0.9 if number < len(COLOURS) else 0.4
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" fill-opacity="{opacity}"><title>{escape(tip or term)}</title></rect>'
    )


class _Point(NamedTuple):
    row: int
    amount: float
    text: str
    fits: bool


def _lines(result: WhatIf) -> list[str]:
    """Draw both answers over the values of a sweep."""
    answers = sorted(result.answers, key=lambda answer: _order(result, answer))
    rates = work_differs(result)
    same = _points([answer.same for answer in answers], rates)
    best = _points([answer.best for answer in answers], rates)
    base = _amount(result.baseline, rates)
    ticks = round_ticks(max([base, *(point.amount for point in (*same, *best))]))
    names = [row_name(result, answer) for answer in answers]
    body = svg_head(LEFT + WIDTH + LEGEND, TOP + HEIGHT + 60, _title(result), 18)
    body += _axes(result, names, ticks, rates)
    y = _height(base, ticks[-1])
    body.append(svg_line((LEFT, y, LEFT + WIDTH, y), "#444", ' stroke-dasharray="6 4"'))
    series = ((same, SAME, 7.0), (best, BEST, 4.5))
    for points, colour, radius in series:
        body += _series(points, len(names), ticks[-1], colour, radius)
    return [*body, *_legend()]


def _order(result: WhatIf, answer: Answer) -> tuple[float, int]:
    now = swept_change(result, answer).now
    return (0.0 if isinstance(now, str) else float(now), result.answers.index(answer))


def _amount(priced: PricedPlan, rates: bool) -> float:
    return tokens_per_s(priced) if rates else priced.step_time_s


def _points(plans: list[PricedPlan | None], rates: bool) -> list[_Point]:
    return [
        _Point(
            row,
            _amount(priced, rates),
            tokens_text(priced) if rates else format_seconds(priced.step_time_s),
            priced.prediction.feasible,
        )
        for row, priced in enumerate(plans)
        if priced is not None
    ]


def _height(amount: float, most: float) -> float:
    return TOP + HEIGHT * (1 - amount / most)


def _place(row: int, rows: int) -> float:
    return LEFT + WIDTH * (row + 0.5) / rows


def _axes(result: WhatIf, names: list[str], ticks: list[float], rates: bool) -> Iterator[str]:
    for tick in ticks:
        y = _height(tick, ticks[-1])
        yield svg_line((LEFT, y, LEFT + WIDTH, y), "#e4e4e4")
        shown = f"{tick / 1e3:g} k" if rates and tick else f"{tick:g}"
        yield svg_text(LEFT - 8, y + 4, shown, "end")
    every = -(-len(names) // 12)
    for row, name in enumerate(names):
        if row % every == 0:
            yield svg_text(_place(row, len(names)), TOP + HEIGHT + 18, name, "middle")
    yield svg_text(LEFT + WIDTH / 2, TOP + HEIGHT + 42, swept_path(result), "middle", 14)
    yield svg_text(LEFT - 70, TOP - 16, "tokens/s" if rates else "seconds of a step", "start", 14)


def _series(
    points: list[_Point], rows: int, most: float, colour: str, radius: float
) -> Iterator[str]:
    places = [(_place(p.row, rows), _height(p.amount, most)) for p in points]
    for number in range(1, len(points)):
        if points[number].row == points[number - 1].row + 1:  # no line over a row without a plan
            ends = (*places[number - 1], *places[number])
            yield svg_line(ends, colour, ' style="stroke-width:2"')
    for point, (x, y) in zip(points, places, strict=True):
        tip = point.text if point.fits else f"{point.text}, does not fit"
        yield _point(x, y, colour, radius, point.fits, tip)


def _point(x: float, y: float, colour: str, radius: float, fits: bool, tip: str) -> str:
    fill = colour if fits else "white"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{colour}" '
        f'stroke-width="2"><title>{escape(tip)}</title></circle>'
    )


def _legend() -> Iterator[str]:
    x = LEFT + WIDTH + 20
    marks = (("same plan", SAME, 7.0, True), ("re-planned", BEST, 4.5, True),
             ("does not fit", "#444", 4.5, False))  # fmt: skip
    for number, (name, colour, radius, fits) in enumerate(marks):
        y = TOP + 10 + 24 * number
        yield _point(x + 6, y, colour, radius, fits, name)
        yield svg_text(x + 22, y + 4, name, "start")
    y = TOP + 10 + 24 * len(marks)
    yield svg_line((x - 4, y, x + 16, y), "#444", ' stroke-dasharray="6 4"')
    yield svg_text(x + 22, y + 4, "baseline", "start")
