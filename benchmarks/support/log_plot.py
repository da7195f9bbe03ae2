"""Lines over logarithmic axes as an SVG drawing, with the pieces that the product draws with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardwright.api.html.svg import COLOURS, svg_head, svg_line, svg_text

WIDTH, HEIGHT, LEFT, TOP, LEGEND = 620, 360, 90, 60, 190
"""Of the drawn area, and what stands left of, above and right of it; pixels."""
GRID = "#e4e4e4"


class Point(NamedTuple):
    """A place on a line; hollow where there is no plan."""

    x: float
    y: float
    solid: bool


class Axis:
    """Decades from below the least value to above the largest.

    Args:
        values: what is to be shown, all above 0.
        length: of the axis in pixels.
    """

    def __init__(self, values: Sequence[float], length: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values)) - 1e-9))
        self._length = length

    def place(self, value: float) -> float:
        """Pixels from the start of the axis."""
        return self._length * (math.log10(value) - self.low) / (self.high - self.low)

    @property
    def decades(self) -> list[float]:
        """The powers of ten that it shows."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def log_plot(
    title: str, names: tuple[str, str], lines: Mapping[str, Sequence[Point]], marks: Sequence[float]
) -> str:
    """The drawing as text.

    Args:
        title: above it.
        names: of the horizontal and of the vertical axis.
        lines: name to its points, in order.
        marks: values of the horizontal axis that are written down.
    """
    points = [point for line in lines.values() for point in line]
    across = Axis([*marks, *(p.x for p in points)], WIDTH)
    up = Axis([p.y for p in points], HEIGHT)
    bottom = TOP + HEIGHT
    body = svg_head(LEFT + WIDTH + LEGEND, bottom + 70, title, 18)
    for value in up.decades:
        y = bottom - up.place(value)
        body.append(svg_line((LEFT, y, LEFT + WIDTH, y), GRID))
        body.append(svg_text(LEFT - 8, y + 4, f"{value:g}", "end"))
    for value in marks:
        x = LEFT + across.place(value)
        body.append(svg_line((x, TOP, x, bottom), GRID))
        body.append(svg_text(x, bottom + 18, f"{value:,.0f}", "middle"))
    body.append(svg_text(LEFT + WIDTH / 2, bottom + 44, names[0], "middle", 14))
    body.append(svg_text(18, TOP - 16, names[1], "start", 14))
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(LEFT + across.place(p.x), bottom - up.place(p.y)) for p in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [_dot(x, y, colour, p.solid) for (x, y), p in zip(places, line, strict=True)]
        y = TOP + 14 + 22 * number
        body.append(_dot(LEFT + WIDTH + 26, y - 4, colour, True))
        body.append(svg_text(LEFT + WIDTH + 38, y, name, "start"))
    y = TOP + 14 + 22 * len(lines)
    if not all(p.solid for p in points):
        body.append(_dot(LEFT + WIDTH + 26, y - 4, "#555555", False))
        body.append(svg_text(LEFT + WIDTH + 38, y, "nothing fits", "start"))
    return "\n".join([*body, "</svg>", ""])


def _dot(x: float, y: float, colour: str, solid: bool) -> str:
    fill = colour if solid else "white"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}" '
        'stroke-width="2"/>'
    )
