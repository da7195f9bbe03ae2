"""Lines over logarithmic axes, drawn by matplotlib as SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design", 2008.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
NOTHING_FITS = "nothing fits"
SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "shardwright"}
"""Texts stay texts, and the same figures give the same file."""
SIZE_IN = (9.0, 4.9)


class Point(NamedTuple):
    """A point of a line; hollow where nothing fits."""

    x: float
    y: float
    solid: bool


def log_plot(
    title: str, names: tuple[str, str], lines: Mapping[str, Sequence[Point]], ticks: Sequence[float]
) -> str:
    """The drawing as text.

    Args:
        title: above it.
        names: of the horizontal and the vertical axis.
        lines: name to its points, in order.
        ticks: labelled values of the horizontal axis.
    """
    with matplotlib.rc_context(SETTINGS):
        return _svg(_figure(title, names, lines, ticks))


def _figure(
    title: str, names: tuple[str, str], lines: Mapping[str, Sequence[Point]], ticks: Sequence[float]
) -> Figure:
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=names[0], ylabel=names[1], xscale="log", yscale="log")
    for number, (name, points) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        xs, ys = [p.x for p in points], [p.y for p in points]
        axes.plot(xs, ys, color=color, marker="o", label=name)
        hollow = [p for p in points if not p.solid]
        axes.plot([p.x for p in hollow], [p.y for p in hollow], "o", color=color, mfc="white")
    if not all(p.solid for points in lines.values() for p in points):
        axes.plot([], [], "o", color="#555555", mfc="white", label=NOTHING_FITS)
    axes.set_xticks(ticks, [f"{value:,.0f}" for value in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(color="#e4e4e4")
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
