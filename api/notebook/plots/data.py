"""Tokens left by each stage of a data recipe, as a picture."""

from __future__ import annotations

from typing import Any

from ...html.svg import COLOURS
from .canvas import Picture, figure, label, title


def data_picture(records: list[dict[str, Any]]) -> Picture:
    """Draw a bar a stage, the first at the top."""
    made, axes = figure(8, 0.6 + 0.4 * len(records))
    names = [row["stage"] for row in records]
    axes.barh(names, [row["tokens"] for row in records], color=COLOURS[0])
    axes.invert_yaxis()
    label(axes, "tokens left", "")
    title(axes, f"{records[-1]['tokens']:,} of {records[0]['tokens']:,} tokens")
    picture: Picture = made
    return picture
