"""Two plans side by side as HTML for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..views.comparison_text import compared, comparison_tables, differences, side_text, verdict
from .report import html_table
from .text import escape

if TYPE_CHECKING:
    from ..views.comparison import Comparison


def comparison_html(comparison: Comparison) -> str:
    """Both plans and their terms, without scripts, every text escaped."""
    lines = [
        f"<b>{escape(s.name)}</b>: {escape(side_text(s))}"
        for s in (comparison.first, comparison.second)
    ]
    texts = (compared(comparison), verdict(comparison), *differences(comparison))
    lines += [escape(text) for text in texts if text]
    tables = "".join(
        f"<p><b>{escape(title)}</b></p>"
        + html_table(heads, [[escape(cell) for cell in row] for row in cells])
        for title, heads, cells in comparison_tables(comparison)
    )
    return f'<div style="font-family:sans-serif"><p>{"<br>".join(lines)}</p>{tables}</div>'
