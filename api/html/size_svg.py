"""The scaling curve of a training as SVG: days and MFU by number of devices.

Both axes of days are logarithmic, so that perfect scaling is a straight line. Filled points were
searched in full, hollow ones are the best of the usual uniform plans; the dashed line is proven.
Weak scaling, where both are asked for, is a second line, and a second bar beside each.
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
    points, weak = _drawn(found["points"]), _drawn(found["weak_points"])
    tokens = format_count(found["tokens"])
    title = f"{found['model']} on {tokens} tokens, by number of {found['device']}"
    height = TOP + DAYS + GAP + SHARE + 60
    parts = svg_head(LEFT + WIDTH + RIGHT, height, title, 16)
    if points:
        parts += _days_panel(points, weak, found)
        parts += _share_panel(points, weak)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(points: list[Point]) -> list[Point]:
    return [point for point in points if point["days"] is not None]


def _x(points: list[Point]) -> Place:
    counts = [point["devices"] for point in points]
    return _logarithmic(min(counts), max(counts), LEFT, LEFT + WIDTH)


def _logarithmic(least: float, most: float, start: float, end: float) -> Place:
    span = math.log(most / least) or 1.0
    return lambda value: start + (end - start) * math.log(value / least) / span


def _days_panel(
    points: list[Point], weak: list[Point], found: Mapping[str, Any]
) -> Iterator[str]:
    x = _x([*points, *weak])
    least = [point["least_days"] for point in points]
    every = [*(point["days"] for point in (*points, *weak)), *least]
    low = DECADE ** math.floor(math.log10(min(every)))
    high = DECADE ** math.ceil(math.log10(max(every)))
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
    if weak:
        yield from _weak_line(weak, x, y, found)
    yield _line([(x(p["devices"]), y(p["days"])) for p in points], "")
    for point in points:
        yield _mark(point, x, y, found)


def _mark(point: Point, x: Place, y: Place, found: Mapping[str, Any]) -> str:
    is_answer = point["devices"] == found["answer"]
    fill = COLOURS[2] if is_answer else COLOURS[0] if point["searched"] else "white"
    return (
        f'<circle cx="{x(point["devices"]):.1f}" cy="{y(point["days"]):.1f}" '
        f'r="{6 if is_answer else 4}" fill="{fill}" stroke="{COLOURS[0]}">'
        f"<title>{_name(point, found)}</title></circle>"
    )


def _name(point: Point, found: Mapping[str, Any]) -> str:
    cost = "" if point["cost"] is None else f", {format_count(point['cost'])} {found['currency']}"
    return escape(f"{point['devices']} devices: {point['days']:.3g} days{cost}")


def _weak_line(
    weak: list[Point], x: Place, y: Place, found: Mapping[str, Any]
) -> Iterator[str]:
    places = [(x(point["devices"]), y(point["days"])) for point in weak]
    yield _line(places, "", COLOURS[1])
    yield svg_text(places[-1][0], places[-1][1] - 10, "weak scaling", "end")
    for point, place in zip(weak, places, strict=True):
        name = f"{_name(point, found)}, batch {point['global_batch']}"
        yield (
            f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="4" fill="white" '
            f'stroke="{COLOURS[1]}"><title>{name}</title></circle>'
        )


def _share_panel(points: list[Point], weak: list[Point]) -> Iterator[str]:
    x, top = _x([*points, *weak]), TOP + DAYS + GAP
    yield svg_text(LEFT, top - 10, "MFU", "middle")
    for share in (0.0, 0.25, 0.5, 0.75):
        level = top + SHARE * (1 - share / 0.75)
        yield svg_line((LEFT, level, LEFT + WIDTH, level), "#e4e4e4")
        yield svg_text(LEFT - 8, level + 4, f"{share:.0%}", "end")
    width = 7 if weak else 14
    for side, (curve, colour) in enumerate(((points, COLOURS[0]), (weak, COLOURS[1]))):
        for point in curve:
            size, left = SHARE * min(1.0, point["mfu"] / 0.75), x(point["devices"]) - 7
            yield (
                f'<rect x="{left + side * width:.1f}" y="{top + SHARE - size:.1f}" '
                f'width="{width}" height="{size:.1f}" fill="{colour}"/>'
            )
    for count in sorted({point["devices"] for point in (*points, *weak)}):
        yield svg_text(x(count), top + SHARE + 18, str(count), "middle", 10)
    yield svg_text(LEFT + WIDTH / 2, top + SHARE + 42, "devices", "middle", 14)


def _line(places: list[tuple[float, float]], dashes: str, colour: str = COLOURS[0]) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    extra = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{text}" fill="none" stroke="{colour}"{extra}/>'
