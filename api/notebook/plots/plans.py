"""A plan's pictures: terms of the step, memory of each stage."""

from __future__ import annotations

from typing import Any

from ....spec.report.report import MEMORY_TERMS, MemoryRow, Prediction, Report
from ....spec.units import format_seconds
from ...views.report_text import ROUNDING, percent, shape_text, stage_text
from .canvas import (
    FONT_SIZE,
    GREY,
    Picture,
    figure,
    label,
    memory_colour,
    scaled_bytes,
    scaled_seconds,
    term_colour,
    term_label,
    title,
)

MAX_STAGES = 32
"""Bars that can still be read; with more stages the fullest are drawn."""


def plan_picture(report: Report) -> Picture:
    """Draw the terms of the step beside the memory of stages."""
    rows = shown_rows(report.prediction)
    height = max(3.2, 0.9 + 0.3 * max(len(rows), len(_terms(report.prediction))))
    made, (left, right) = figure(10, height, columns=2)
    draw_terms(left, report.prediction)
    draw_memory(right, report.prediction)
    made.suptitle(f"{report.plan.model.name}: {shape_text(report.plan)}", fontsize=FONT_SIZE + 2)
    picture: Picture = made
    return picture


def memory_picture(report: Report) -> Picture:
    """Draw the memory of each stage by term."""
    height = max(2.4, 1.1 + 0.3 * len(shown_rows(report.prediction)))
    made, axes = figure(7.5, height)
    draw_memory(axes, report.prediction)
    picture: Picture = made
    return picture


def terms_picture(report: Report) -> Picture:
    """Draw the terms of the step."""
    made, axes = figure(6.5, max(2.4, 0.9 + 0.3 * len(_terms(report.prediction))))
    draw_terms(axes, report.prediction)
    picture: Picture = made
    return picture


def _terms(prediction: Prediction) -> list[tuple[str, float]]:
    least_s = ROUNDING * prediction.step_time_s
    visible = [(name, s) for name, s in prediction.breakdown_s.items() if abs(s) > least_s]
    return sorted(visible, key=lambda item: (-item[1], item[0]))


def draw_terms(axes: Any, prediction: Prediction) -> None:
    """Draw one bar per term, with its seconds and share."""
    terms = _terms(prediction)
    factor, unit = scaled_seconds(prediction.step_time_s)
    for row, (name, seconds) in enumerate(terms):
        colour, opacity = term_colour(name)
        axes.barh(row, seconds * factor, color=colour, alpha=opacity, height=0.7)
        text = f" {format_seconds(seconds)}, {percent(seconds / prediction.step_time_s)}"
        axes.text(seconds * factor, row, text, va="center", fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(terms)), [term_label(name) for name, _ in terms])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * max(seconds for _, seconds in terms) * factor)
    label(axes, f"{unit} of a step")
    title(axes, f"step {format_seconds(prediction.step_time_s)}")


def shown_rows(prediction: Prediction) -> list[MemoryRow]:
    """Stages to draw, in order."""
    rows = list(prediction.memory)
    if len(rows) <= MAX_STAGES:
        return rows
    peak_memory_row = sorted(rows, key=lambda row: -row.reserved_bytes / max(1, row.capacity_bytes))
    kept = {id(row) for row in peak_memory_row[:MAX_STAGES]}
    return [row for row in rows if id(row) in kept]


def draw_memory(axes: Any, prediction: Prediction) -> None:
    """Draw one bar per stage, by term, and its capacity line."""
    rows = shown_rows(prediction)
    factor, unit = scaled_bytes(max(row.capacity_bytes for row in rows))
    names = [*MEMORY_TERMS, *dict.fromkeys(n for r in rows for n in r.by if n not in MEMORY_TERMS)]
    starts = [0.0] * len(rows)
    for name in names:
        sizes = [row.by.get(name, 0) * factor for row in rows]
        if not any(sizes):
            continue
        colour, opacity = memory_colour(name)
        places = range(len(rows))
        axes.barh(
            places,
            sizes,
            left=starts,
            color=colour,
            alpha=opacity,
            height=0.7,
            label=term_label(name),
        )
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for position, row in enumerate(rows):
        x = row.capacity_bytes * factor
        axes.plot([x, x], [position - 0.42, position + 0.42], color="black", linewidth=1.6)
    axes.plot([], [], color="black", linewidth=1.6, label="capacity")
    axes.set_yticks(range(len(rows)), [_place(row, rows) for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.03 * max(max(starts), *(r.capacity_bytes * factor for r in rows)))
    label(axes, f"{unit} reserved on a device")
    left_out = len(prediction.memory) - len(rows)
    more = f"; {left_out} stages with more room left out" if left_out else ""
    title(axes, f"memory by stage{more}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=FONT_SIZE - 1, frameon=False)
    axes.grid(axis="x", color=GREY, alpha=0.2)


def _place(row: MemoryRow, rows: list[MemoryRow]) -> str:
    tier = "" if row.tier == "hbm" else f", {row.tier}"
    return f"{stage_text(row, tuple(rows))}{tier}"
