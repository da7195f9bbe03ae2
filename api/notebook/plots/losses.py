"""A run's losses as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from ...html.svg import COLOURS
from .canvas import GREY, Picture, figure, label, title

MEAN_STEPS = 20
"""Steps whose mean is drawn over the losses of a longer run."""


def loss_picture(steps: Sequence[int], losses: Sequence[float]) -> Picture:
    """Loss over optimizer steps, with a running mean for long runs."""
    made, axes = figure(8, 3.2)
    has_mean = len(losses) > 2 * MEAN_STEPS
    axes.plot(
        steps,
        losses,
        color=GREY if has_mean else COLOURS[0],
        linewidth=0.8 if has_mean else 1.6,
        marker=None if has_mean else "o",
        markersize=3,
        label="each step",
    )
    if has_mean:
        means = running_mean(losses, MEAN_STEPS)
        name = f"mean of {MEAN_STEPS} steps"
        axes.plot(steps[MEAN_STEPS - 1 :], means, color=COLOURS[0], linewidth=1.8, label=name)
        axes.legend(frameon=False)
    label(axes, "optimizer step", "loss")
    first, last = losses[0], losses[-1]
    title(axes, f"loss {first:.4f} to {last:.4f} in {len(losses)} steps")
    picture: Picture = made
    return picture


def running_mean(values: Sequence[float], count: int) -> list[float]:
    """Means of each ``count`` values in a row."""
    return [sum(values[n : n + count]) / count for n in range(len(values) - count + 1)]
