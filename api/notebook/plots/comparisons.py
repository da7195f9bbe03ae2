"""Two plans as a picture: from one's seconds to the other's."""

from __future__ import annotations

from ....spec.units import format_seconds
from ...views.comparison import Comparison
from ...views.report_text import ROUNDING
from .canvas import FONT_SIZE, GREY, Picture, figure, label, scaled_seconds, term_label, title

WORSE, BETTER, WHOLE = "#D55E00", "#009E73", "#5b6770"


def comparison_picture(comparison: Comparison) -> Picture:
    """Waterfall of the differing terms, largest difference first."""
    first_s, second_s = comparison.whole_s
    least_s = ROUNDING * max(first_s, second_s)
    moved = [(pair.term, pair.by) for pair in comparison.terms if abs(pair.by) > least_s]
    moved.sort(key=lambda item: (-abs(item[1]), item[0]))
    factor, unit = scaled_seconds(max(first_s, second_s))
    rows = [comparison.first.name, *(term_label(term) for term, _ in moved), comparison.second.name]
    made, axes = figure(8, max(2.4, 0.9 + 0.32 * len(rows)))
    axes.barh(0, first_s * factor, color=WHOLE, height=0.65)
    tops, at_s = [first_s], first_s
    for row, (_, by_s) in enumerate(moved, start=1):
        colour = WORSE if by_s > 0 else BETTER
        axes.barh(row, by_s * factor, left=at_s * factor, color=colour, height=0.65)
        axes.plot([at_s * factor] * 2, [row - 0.68, row + 0.32], color=GREY, linewidth=0.8)
        at_s += by_s
        tops.append(max(at_s, at_s - by_s))
    axes.barh(len(rows) - 1, second_s * factor, color=WHOLE, height=0.65)
    tops.append(second_s)
    signs = [f"{'+' if by > 0 else '-'}{format_seconds(abs(by))}" for _, by in moved]
    texts = [format_seconds(first_s), *signs, format_seconds(second_s)]
    for row, (top, text) in enumerate(zip(tops, texts, strict=True)):
        axes.text(top * factor, row, f" {text}", va="center", fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(tops) * factor)
    label(axes, f"{unit} a {comparison.unit}")
    title(axes, f"from {comparison.first.name} to {comparison.second.name}, by term")
    picture: Picture = made
    return picture
