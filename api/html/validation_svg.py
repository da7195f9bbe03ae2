"""Predicted against measured as hand-written SVG.

Both axes are logarithmic with the same range, so equal errors lie equally far from the diagonal;
the gray band is ±20 %. One color per source (Okabe and Ito, 2008, distinguishable by color-blind
readers), with shapes where colors repeat.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from ...costmodel.explain.accuracy import Pair
from .svg import COLOURS, FONT, svg_head, svg_line, svg_text
from .text import escape

SIZE, LEFT, TOP, LEGEND = 560, 70, 44, 230
"""Of the square of points, and of what stands left of it, above and right of it; pixels."""
SHAPES = ("circle", "square", "diamond")
BAND = 0.2


def validation_svg(title: str, unit: str, points: Mapping[str, Sequence[Pair]]) -> str:
    """Draw the points as SVG text.

    ``points`` are predicted and measured, by source; sources without points are left out.
    """
    drawn = {name: pairs for name, pairs in points.items() if pairs}
    scale = LogScale([value for pairs in drawn.values() for pair in pairs for value in pair])
    body = [*_frame(scale, unit), *_band(scale)]
    body.append(svg_text(LEFT + SIZE + 18, TOP, "source: rows, median error", "start"))
    for number, (name, pairs) in enumerate(drawn.items()):
        body += [_mark(number, scale.x(m), scale.y(p), name) for p, m in pairs]
        body += _legend(number, name, pairs)
    return "\n".join([*_head(title, drawn), *body, "</svg>", ""])


class LogScale:
    """Logarithmic scale, the same decades on both axes."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        self.low, self.high = math.log10(low / 1.3), math.log10(high * 1.3)

    def _share(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low)

    def x(self, value: float) -> float:
        """Pixels from the left edge."""
        return LEFT + SIZE * self._share(value)

    def y(self, value: float) -> float:
        """Pixels from the top edge."""
        return TOP + SIZE * (1 - self._share(value))

    def ticks(self) -> Iterator[float]:
        """Whole decades, with twos and fives where there are few."""
        steps = (1, 2, 5) if self.high - self.low < 3 else (1,)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                value = step * 10.0**decade
                if self.low <= math.log10(value) <= self.high:
                    yield value


def _head(title: str, drawn: Mapping[str, Sequence[Pair]]) -> list[str]:
    width = LEFT + SIZE + LEGEND
    height = max(TOP + SIZE + 60, TOP + 40 + 24 * len(drawn))
    return svg_head(width, height, title, LEFT)


def _frame(scale: LogScale, unit: str) -> Iterator[str]:
    """Edges, grid, numbers and names of the axes."""
    bottom, right = TOP + SIZE, LEFT + SIZE
    for value in scale.ticks():
        x, y, text = scale.x(value), scale.y(value), f"{value:g}"
        for ends in ((x, TOP, x, bottom), (LEFT, y, right, y)):
            yield svg_line(ends, "#e4e4e4")
        yield svg_text(x, bottom + 18, text, "middle")
        yield svg_text(LEFT - 8, y + 4, text, "end")
    yield f'<rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#444"/>'
    yield svg_text(LEFT + SIZE / 2, bottom + 42, f"measured, {unit}", "middle", 14)
    middle = TOP + SIZE / 2
    yield (
        f'<text x="18" y="{middle}" {FONT} font-size="14" text-anchor="middle" '
        f'transform="rotate(-90 18 {middle})">predicted, {unit}</text>'
    )


def _band(scale: LogScale) -> Iterator[str]:
    """The diagonal and its ±20 % band, cut at the frame."""
    low, high = 10**scale.low, 10**scale.high
    more, less = 1 + BAND, 1 - BAND
    corners = (
        *((low, low), (low, low * more), (high / more, high)),
        *((high, high), (high, high * less), (low / less, low)),
    )
    text = " ".join(f"{scale.x(m):.1f},{scale.y(p):.1f}" for m, p in corners)
    yield f'<polygon points="{text}" fill="#888" fill-opacity="0.18"/>'
    yield svg_line((scale.x(low), scale.y(low), scale.x(high), scale.y(high)), "#444")


def _legend(number: int, name: str, pairs: Sequence[Pair]) -> Iterator[str]:
    y = TOP + 24 + 24 * number
    x = LEFT + SIZE + 24
    median = statistics.median(abs(predicted / measured - 1) for predicted, measured in pairs)
    yield _mark(number, x, y - 4, name)
    yield svg_text(x + 14, y, f"{name}: {len(pairs)} rows, {median:.1%}", "start")


def _mark(number: int, x: float, y: float, name: str) -> str:
    colour = COLOURS[number % len(COLOURS)]
    shape = SHAPES[number // len(COLOURS) % len(SHAPES)]
    style = f'fill="{colour}" fill-opacity="0.6" stroke="{colour}"'
    tip = f"<title>{escape(name)}</title>"
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {style}>{tip}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    position = f'x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4"'
    return f"<rect {position} {style}{turn}>{tip}</rect>"
