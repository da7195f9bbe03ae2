"""Two plans side by side on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..views.comparison_text import compared, comparison_tables, differences, side_text, verdict
from .console import columns, heading

if TYPE_CHECKING:
    from ..views.comparison import Comparison


def print_comparison(out: Console, comparison: Comparison) -> None:
    """Print both plans, the faster one, their decisions and terms."""
    for side in (comparison.first, comparison.second):
        out.print(Text.assemble((side.name, "bold"), f": {side_text(side)}"), overflow="fold")
    if text := compared(comparison):
        out.print(text, overflow="fold")
    out.print(verdict(comparison), overflow="fold")
    for line in differences(comparison):
        out.print(line, overflow="fold")
    for title, heads, cells in comparison_tables(comparison):
        heading(out, title)
        table = columns(*heads, right=heads[1:])
        for row in cells:
            table.add_row(*row)
        out.print(table)
