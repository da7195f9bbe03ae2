"""Predicted against measured as a picture with a ±20 % band."""

from __future__ import annotations

from ...html.svg import COLOURS
from ...validation.validate import ValidationResult
from .canvas import FONT_SIZE, GREY, Picture, figure, label, title

MARKS = "osD^vP*X"
BAND = 0.2


def validation_picture(validation: ValidationResult) -> Picture:
    """Draw one point per row, one color per source, on logarithmic axes."""
    unit = "s" if validation.document["metric"] == "step_time" else "GiB"
    drawn = {name: pairs for name, pairs in validation.points.items() if pairs}
    made, axes = figure(8, 5.5)
    for number, (name, pairs) in enumerate(drawn.items()):
        axes.scatter(
            [measured for _, measured in pairs],
            [predicted for predicted, _ in pairs],
            s=16, alpha=0.6, linewidths=0,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKS[number // len(COLOURS) % len(MARKS)],
            label=f"{name} ({len(pairs)})",
        )  # fmt: skip
    values = [value for pairs in drawn.values() for pair in pairs for value in pair]
    low, high = (min(values) / 1.3, max(values) * 1.3) if values else (0.1, 10.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = [low, high]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(
        ends, [x * (1 - BAND) for x in ends], [x * (1 + BAND) for x in ends],
        color=GREY, alpha=0.18, linewidth=0,
    )  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    label(axes, f"measured, {unit}", f"predicted, {unit}")
    title(axes, f"{validation.document['data']}, calibration {validation.document['calibration']}")
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=FONT_SIZE - 1, frameon=False,
        title="source (rows)", title_fontsize=FONT_SIZE - 1, ncols=1 if len(drawn) < 20 else 2,
    )  # fmt: skip
    picture: Picture = made
    return picture
