"""A drawing as a PNG, by matplotlib."""

from __future__ import annotations

from io import BytesIO

from ...html.svg import Drawing, Label
from .canvas import figure

DOTS_PER_INCH, SCALE = 100, 2
"""Pixels of a drawing in an inch, and dots of the picture in such a pixel."""
POINTS = 72 / DOTS_PER_INCH


def drawing_png(drawing: Drawing) -> bytes:
    """Write a drawing as a PNG.

    Raises:
        InputError: matplotlib is not installed.
    """
    made, axes = figure(drawing.width / DOTS_PER_INCH, drawing.height / DOTS_PER_INCH)
    from matplotlib.patches import Rectangle

    made.set_layout_engine("none")
    axes.set_position((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for shape in drawing.shapes:
        if isinstance(shape, Label):
            axes.text(
                shape.x,
                shape.y,
                shape.text.replace("$", r"\$"),  # no formula
                fontsize=shape.size * POINTS,
                color=shape.colour,
            )
        else:
            corner, color = (shape.x, shape.y), shape.colour
            axes.add_patch(
                Rectangle(corner, shape.width, shape.height, color=color, alpha=shape.opacity, lw=0)
            )
    target = BytesIO()
    made.savefig(target, format="png", dpi=DOTS_PER_INCH * SCALE, metadata={"Software": None})
    return target.getvalue()
