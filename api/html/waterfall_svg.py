"""A measured step's waterfall as SVG: from the devices' peak down to the measured time.

Each bar begins where the one before it ended, and the last one is the measured step, so that their
widths add up. What made the run faster than simulated goes back to the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...spec.units import format_seconds
from .svg import COLOURS, svg_head, svg_line, svg_text
from .text import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 480, 130, 130, 56, 24, 16
"""Of the widest bar, of the names, of the figures, above, of a row and of its bar; pixels."""
PEAK, UNEXPLAINED, STEP = "at_peak", "unexplained", "measured step"
GAIN = COLOURS[2]
LEAST_SHARE = 0.001
"""Share of the step below which bars are drawn as one."""


def waterfall_svg(found: Mapping[str, Any]) -> str:
    """Draw the waterfall of a diagnosis' document as SVG text."""
    bars = shown_bars(found["waterfall"]["bars"])
    step_s = found["waterfall"]["measured_s"]
    title = f"{found['source']}: {format_seconds(step_s)} a step, by term"
    height = TOP + ROW * (len(bars) + 1) + 16
    head = svg_head(LEFT + WIDTH + RIGHT, height, title, 16)
    return "\n".join([*head, *_rows(bars, step_s), "</svg>", ""])


def shown_bars(bars: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bars of a document with those below a thousandth of the step summed up."""
    kept, rest = list[dict[str, Any]](), list[dict[str, Any]]()
    for bar in bars:
        small = abs(bar["share"]) < LEAST_SHARE and bar["term"] not in (PEAK, UNEXPLAINED)
        (rest if small else kept).append(bar)
    if rest:
        sums = {key: sum(bar[key] for bar in rest) for key in ("seconds", "share")}
        meaning = "terms below a thousandth of the step"
        kept.append({"term": "the_rest", "meaning": meaning, **sums})
    return kept


def _rows(bars: list[dict[str, Any]], step_s: float) -> Iterator[str]:
    ends, total_s = [], 0.0
    for bar in bars:
        ends.append((total_s, total_s + bar["seconds"]))
        total_s = ends[-1][1]
    widest = max(step_s, *(max(pair) for pair in ends))
    scale = WIDTH / widest
    for number, (bar, (start, end)) in enumerate(zip(bars, ends, strict=True)):
        y = TOP + ROW * number
        x, width = LEFT + scale * min(start, end), scale * abs(end - start)
        yield _bar(x, y, width, _colour(bar), bar["meaning"])
        yield _words(y, bar["term"].replace("_", " "), bar["seconds"], bar["share"])
        edge = LEFT + scale * end
        yield svg_line((edge, y, edge, y + ROW + BAR), "#888", ' stroke-dasharray="2 2"')
    y = TOP + ROW * len(bars)
    yield _bar(LEFT, y, scale * step_s, COLOURS[6], "seconds of the measured step")
    yield _words(y, STEP, step_s, 1.0)


def _colour(bar: Mapping[str, Any]) -> str:
    if bar["term"] == PEAK or bar["seconds"] < 0:
        return GAIN
    return COLOURS[1] if bar["term"] == UNEXPLAINED else COLOURS[0]


def _bar(x: float, y: float, width: float, colour: str, meaning: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{BAR}" fill="{colour}">'
        f"<title>{escape(meaning)}</title></rect>"
    )


def _words(y: float, term: str, seconds: float, share: float) -> str:
    sign = "-" if seconds < 0 else ""
    figure = f"{sign}{format_seconds(abs(seconds))}, {share:.1%}"
    name = svg_text(LEFT - 8, y + BAR - 3, term, "end")
    return name + svg_text(LEFT + WIDTH + RIGHT - 8, y + BAR - 3, figure, "end")
