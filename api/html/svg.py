"""Hand-written SVG: lines, texts and color-blind-safe colors.

Okabe and Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .text import escape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
FONT = 'font-family="sans-serif"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A filled rectangle; pixels."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text that starts at a place; its base line and size in pixels."""

    x: float
    y: float
    text: str
    size: int = 12
    colour: str = "#222222"


Shape = Box | Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Shapes on a white ground, in the order in which they are drawn; pixels."""

    width: float
    height: float
    title: str
    shapes: tuple[Shape, ...]


def drawing_svg(drawing: Drawing) -> str:
    """Write a drawing as SVG text."""
    size = f'width="{drawing.width:g}" height="{drawing.height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'viewBox="0 0 {drawing.width:g} {drawing.height:g}">',
        f"<title>{escape(drawing.title)}</title>",
        f'<rect {size} fill="white"/>',
        *(_shape(shape) for shape in drawing.shapes),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _shape(shape: Shape) -> str:
    if isinstance(shape, Label):
        return (
            f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" {FONT} font-size="{shape.size}" '
            f'fill="{shape.colour}">{escape(shape.text)}</text>'
        )
    opacity = "" if shape.opacity == 1 else f' fill-opacity="{shape.opacity:g}"'
    return (
        f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(0.0, shape.width):.1f}" '
        f'height="{shape.height:.1f}" fill="{shape.colour}"{opacity}/>'
    )


def svg_line(ends: tuple[float, float, float, float], colour: str, extra: str = "") -> str:
    """Draw a thin line between two points (x, y)."""
    x1, y1, x2, y2 = ends
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="1"{extra}/>'
    )


def svg_text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    """Text at a place; ``anchor`` is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def svg_head(width: float, height: float, title: str, left: float) -> list[str]:
    """Open a drawing with a white background and a title."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
        f'<text x="{left:g}" y="26" {FONT} font-size="16">{escape(title)}</text>',
    ]


def round_ticks(most: float, count: int = 5) -> list[float]:
    """List about ``count`` round values from 0 to at least ``most``."""
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]
