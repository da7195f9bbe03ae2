"""Console of results: at most 100 columns, plain when not a terminal."""

from __future__ import annotations

import sys
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...spec.report.report import MemoryRow

WIDTH = 100
BAR_CELLS = 10


def console(stream: IO[str] | None = None) -> Console:
    """Console on ``stream`` (standard output by default).

    Colors only on a terminal and without NO_COLOR; 100 columns unless the terminal has fewer.
    """
    made = Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
    made.width = min(WIDTH, made.width) if made.is_terminal else WIDTH
    return made


def bar_cells(stream: IO[str] | None = None) -> tuple[str, str]:
    """Choose full and empty cells that standard output can show."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or ""
    return ("█", "░") if encoding.casefold().startswith("utf") else ("#", ".")


def columns(*headers: str, right: tuple[str, ...] = ()) -> Table:
    """Make a table without lines; columns in ``right`` hold numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        number = header in right
        table.add_column(header, justify="right" if number else "left", no_wrap=number)
    return table


def heading(out: Console, text: str) -> None:
    """Print a bold line after an empty one."""
    out.print(Text(f"\n{text}", style="bold"))


def memory_bar(row: MemoryRow) -> Text:
    """Draw reserved over capacity in ten cells.

    Green, yellow from 90 %, red on overflow.
    """
    part = row.reserved_bytes / max(1, row.capacity_bytes)
    full = min(BAR_CELLS, round(part * BAR_CELLS))
    on, off = bar_cells()
    style = "red" if part > 1 else "yellow" if part > 0.9 else "green"
    return Text(on * full + off * (BAR_CELLS - full), style=style)
