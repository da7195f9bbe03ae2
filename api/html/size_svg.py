"""The scaling curve of a training as SVG: days and MFU by number of devices.

Both axes of days are logarithmic, so that perfect scaling is a straight line. Filled points were
searched in full, hollow ones are the best of the usual uniform plans; the dashed line is proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...spec.units import format_count
from .svg import COLOURS, svg_head, svg_line, svg_text
from .text import escape

WIDTH, LEFT, RIGHT, TOP = 640, 80, 30, 60
DAYS, SHARE, GAP = 300, 120, 60
"""Heights of the two panels, and between them; pixels."""
DECADE, DAY_S = 10.0, 86400.0
Place = Callable[[float], float]
Point = Mapping[str, Any]


def size_svg(found: Mapping[str, Any]) -> str:
    """Draw the curve of a TrainingSize's document as SVG text."""
    points = [point for point in found["points"] if point["days"] is not None]
    tokens = format_count(found["tokens"])
    title = f"{found['model']} on {tokens} tokens, by number of {found['device']}"
    height = TOP + DAYS + GAP + SHARE + 60
    parts = svg_head(LEFT + WIDTH + RIGHT, height, title, 16)
    if points:
        parts += _days_panel(points, found)
        parts += _share_panel(points)
    return "\n".join([*parts, "</svg>", ""])


def _x(points: list[Point]) -> Place:
    return _logarithmic(points[0]["devices"], points[-1]["devices"], LEFT, LEFT + WIDTH)


def _logarithmic(least: float, most: float, start: float, end: float) -> Place:
    span = math.log(most / least) or 1.0
    return lambda value: start + (end - start) * math.log(value / least) / span


def _days_panel(points: list[Point], found: Mapping[str, Any]) -> Iterator[str]:
    x = _x(points)
    days = [point["days"] for point in points]
    least = [point["least_days"] for point in points]
    low = DECADE ** math.floor(math.log10(min(*days, *least)))
    high = DECADE ** math.ceil(math.log10(max(*days, *least)))
    y = _logarithmic(low, max(high, low * DECADE), TOP + DAYS, TOP)
    tick = low
    while tick <= high * 1.001:
        yield svg_line((LEFT, y(tick), LEFT + WIDTH, y(tick)), "#e4e4e4")
        yield svg_text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end")
        tick *= DECADE
    yield svg_text(LEFT, TOP - 10, "days", "middle")
    if found["within_s"] is not None and low <= found["within_s"] / DAY_S <= high:
        limit = y(found["within_s"] / DAY_S)
        yield svg_line((LEFT, limit, LEFT + WIDTH, limit), COLOURS[1])
    yield _line([(x(p["devices"]), y(d)) for p, d in zip(points, least, strict=True)], "4 4")
    places = [(x(p["devices"]), y(d)) for p, d in zip(points, days, strict=True)]
    yield _line(places, "")
    for point, place in zip(points, places, strict=True):
        yield _mark(point, place, found)


def _mark(point: Point, place: tuple[float, float], found: Mapping[str, Any]) -> str:
    cost = "" if point["cost"] is None else f", {format_count(point['cost'])} {found['currency']}"
    name = f"{point['devices']} devices: {point['days']:.3g} days{cost}"
    is_answer = point["devices"] == found["answer"]
    fill = COLOURS[2] if is_answer else COLOURS[0] if point["searched"] else "white"
    return (
        f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{6 if is_answer else 4}" '
        f'fill="{fill}" stroke="{COLOURS[0]}"><title>{escape(name)}</title></circle>'
    )


def _share_panel(points: list[Point]) -> Iterator[str]:
    x, top = _x(points), TOP + DAYS + GAP
    yield svg_text(LEFT, top - 10, "MFU", "middle")
    for share in (0.0, 0.25, 0.5, 0.75):
        level = top + SHARE * (1 - share / 0.75)
        yield svg_line((LEFT, level, LEFT + WIDTH, level), "#e4e4e4")
        yield svg_text(LEFT - 8, level + 4, f"{share:.0%}", "end")
    for point in points:
        size = SHARE * min(1.0, point["mfu"] / 0.75)
        yield (
            f'<rect x="{x(point["devices"]) - 7:.1f}" y="{top + SHARE - size:.1f}" width="14" '
            f'height="{size:.1f}" fill="{COLOURS[0]}"/>'
        )
        yield svg_text(x(point["devices"]), top + SHARE + 18, str(point["devices"]), "middle", 10)
    yield svg_text(LEFT + WIDTH / 2, top + SHARE + 42, "devices", "middle", 14)


def _line(places: list[tuple[float, float]], dashes: str) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    extra = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{text}" fill="none" stroke="{COLOURS[0]}"{extra}/>'
