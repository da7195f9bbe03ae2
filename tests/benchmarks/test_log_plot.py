"""Lines over logarithmic axes: every point is drawn, hollow where nothing fits."""

from __future__ import annotations

from xml.etree import ElementTree

from support import log_plot
from support.log_plot import Point

LINES = {
    "small": [Point(8, 2.0, True), Point(64, 4.0, True)],
    "large": [Point(8, 1.0, False), Point(64, 9.0, True)],
}
DRAWING = ("plans", ("devices", "seconds"), LINES, [8, 64])


def test_axes_are_logarithmic_and_every_point_is_drawn() -> None:
    (axes,) = log_plot._figure(*DRAWING).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    drawn = {line.get_label(): line for line in axes.lines}
    assert [list(drawn[name].get_ydata()) for name in LINES] == [[2.0, 4.0], [1.0, 9.0]]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[], [8], []]
    assert list(axes.get_xticks()) == [8, 64]


def test_the_drawing_is_text_and_the_same_each_time() -> None:
    drawing = log_plot.log_plot(*DRAWING)
    root = ElementTree.fromstring(drawing)
    texts = {"".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"plans", "devices", "seconds", "small", "large", "64", "nothing fits"} <= texts
    assert log_plot.log_plot(*DRAWING) == drawing


def test_hollow_points_have_a_line_in_the_legend_only_where_there_are_some() -> None:
    lines = {"small": LINES["small"]}
    assert "nothing fits" not in log_plot.log_plot("plans", ("x", "y"), lines, [8, 64])
