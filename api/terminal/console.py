"""Console of results: at most 100 columns, plain when not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Span, Text

from ...spec.errors import printable
from ...spec.report.report import MemoryRow

WIDTH = 100
BAR_CELLS = 10


class PrintableConsole(Console):
    """Console that shows every text printably, on the line where it was put.

    Names come from documents: an escape sequence, a line end or a mark of writing direction in one
    is shown escaped. Whoever wants another line prints another one.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as it may be shown."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments of what is shown, a styled text printably too."""
        if isinstance(renderable, Text) and not renderable.plain.isprintable():
            renderable = _printable_text(renderable)
        return super().render(renderable, options)


def _printable_text(text: Text) -> Text:
    """The same text in the same styles, unprintable characters escaped."""
    made = text.blank_copy()
    for part in text.divide(range(1, len(text))):
        shown = printable(part.plain)
        spans = [Span(0, len(shown), span.style) for span in part.spans]
        made.append_text(Text(shown, part.style, spans=spans))
    return made


def console(stream: IO[str] | None = None) -> Console:
    """Console on ``stream`` (standard output by default).

    Colors only on a terminal and without NO_COLOR; 100 columns unless the terminal has fewer.
    """
    made = PrintableConsole(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
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
    out.print()
    out.print(Text(text, style="bold"))


def memory_bar(row: MemoryRow) -> Text:
    """Draw reserved over capacity in ten cells.

    Green, yellow from 90 %, red on overflow.
    """
    part = row.reserved_bytes / max(1, row.capacity_bytes)
    full = min(BAR_CELLS, round(part * BAR_CELLS))
    on, off = bar_cells()
    style = "red" if part > 1 else "yellow" if part > 0.9 else "green"
    return Text(on * full + off * (BAR_CELLS - full), style=style)
