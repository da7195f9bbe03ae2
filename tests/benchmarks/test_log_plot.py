"""Lines over logarithmic axes: well-formed, decades evenly apart, hollow where nothing fits."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from support.log_plot import Axis, Point, log_plot

SVG = "{http://www.w3.org/2000/svg}"


def test_decades_are_evenly_apart() -> None:
    axis = Axis([3.0, 900.0], 300.0)
    assert axis.decades == [1.0, 10.0, 100.0, 1000.0]
    assert [axis.place(v) for v in axis.decades] == pytest.approx([0.0, 100.0, 200.0, 300.0])


def test_one_value_has_a_decade() -> None:
    assert Axis([10.0], 50.0).decades == [10.0, 100.0]


def test_every_point_is_drawn_and_those_without_a_plan_are_hollow() -> None:
    lines = {
        "small": [Point(8, 2.0, True), Point(64, 4.0, True)],
        "large": [Point(8, 1.0, False), Point(64, 9.0, True)],
    }
    root = ElementTree.fromstring(log_plot("plans", ("devices", "seconds"), lines, [8, 64]))
    dots = root.findall(f"{SVG}circle")
    of_points, of_legend = 4, 3
    assert len(dots) == of_points + of_legend
    assert sum(dot.get("fill") == "white" for dot in dots) == 2
    xs = [float(pair.split(",")[0]) for line in root.findall(f"{SVG}polyline")
          for pair in str(line.get("points")).split()]  # fmt: skip
    assert xs[0] < xs[1]
    assert xs[:2] == xs[2:]
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert {"plans", "devices", "seconds", "small", "large", "64", "nothing fits"} <= set(texts)
