"""The matplotlib Figure of every picture, shown by notebooks.

Made without pyplot: no global state, no windows, nothing to close.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Protocol

from ....spec.errors import InputError
from ....spec.report.overlap import OVERLAPPED
from ....spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS
from ...html.svg import COLOURS

GREY, DARK, INK = "#8a8a8a", "#5b6770", "#222222"
HIDDEN = ("#bcc9dc", 0.9)
DOTS_PER_INCH = 110
FONT_SIZE = 9


class Picture(Protocol):
    """A matplotlib Figure, with ``savefig(path)`` and adjustable ``axes``."""

    axes: Any

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write it to a file or a buffer."""


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **grid: Any) -> Any:
    """Create an empty figure with axes.

    Args:
        width: inches.
        height: likewise.
        rows: of axes.
        columns: of axes.
        grid: options of ``Figure.subplots``.

    Returns:
        The figure and the result of ``Figure.subplots``.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        allowed = "an environment with matplotlib (the extra notebook brings it)"
        raise InputError("plot", "no matplotlib", allowed, "pip install matplotlib") from None

    class NotebookFigure(Figure):
        """Figure that a notebook shows without pyplot."""

        def _repr_png_(self) -> bytes:
            target = BytesIO()
            self.savefig(target, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
            return target.getvalue()

        def __repr__(self) -> str:
            return f"<Picture {len(self.axes)} axes>"

    made = NotebookFigure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = made.subplots(rows, columns, **grid)
    for panel in [axes] if rows == columns == 1 else axes.flat:
        panel.tick_params(labelsize=FONT_SIZE)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return made, axes


def term_colour(term: str) -> tuple[str, float]:
    """Return a term's color and opacity; repeats are paler, and hidden traffic is pale gray."""
    return HIDDEN if term.startswith(OVERLAPPED) else _colour(BREAKDOWN_TERMS, term)


def memory_colour(term: str) -> tuple[str, float]:
    """Color and opacity of a memory term."""
    return _colour(MEMORY_TERMS, term)


def _colour(terms: tuple[str, ...], term: str) -> tuple[str, float]:
    number = terms.index(term) if term in terms else len(terms)
    colour = COLOURS[number % len(COLOURS)]
    # Black is for lines here.
    return DARK if colour == "#000000" else colour, 0.9 if number < len(COLOURS) else 0.45


def term_label(term: str) -> str:
    """Term as displayed."""
    return term.replace("_", " ")


def title(axes: Any, text: str) -> None:
    """Title at the left of axes."""
    axes.set_title(text, loc="left", fontsize=FONT_SIZE + 2, color=INK)


def label(axes: Any, x: str = "", y: str = "") -> None:
    """Names of both axes."""
    axes.set_xlabel(x, fontsize=FONT_SIZE)
    axes.set_ylabel(y, fontsize=FONT_SIZE)


def scaled_seconds(longest_s: float) -> tuple[float, str]:
    """Factor and unit for drawn seconds."""
    if longest_s >= 1:
        return 1.0, "s"
    return (1e3, "ms") if longest_s >= 1e-3 else (1e6, "us")


def scaled_bytes(largest: float) -> tuple[float, str]:
    """Factor and unit for drawn bytes."""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if largest >= 1024**power:
            return 1 / 1024**power, unit
    return 1 / 1024, "KiB"
