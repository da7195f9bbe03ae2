"""Python handle of a timeline: DataFrame, picture, table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ...spec.report.timeline import Timeline
from ...spec.units import format_seconds
from ..html.report import html_table
from .frames import frame

if TYPE_CHECKING:
    from .plots.canvas import Picture

HEADS = ("rank", "computes", "waits", "communicates, seen", "peak")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TimelineHandle(Timeline):
    """A timeline as a notebook shows it, one simulated rank per stage."""

    def to_frame(self) -> Any:
        """Return a DataFrame, one row per span, ordered by start.

        Raises:
            InputError: pandas is not installed.
        """
        spans = sorted(self.spans, key=lambda span: (span.start_s, span.stream.rank))
        return frame(
            {
                "rank": span.stream.rank,
                "stream": f"{span.stream.kind} {span.stream.name}".strip(),
                "name": span.name,
                "term": span.term,
                "start_s": span.start_s,
                "duration_s": span.duration_s,
            }
            for span in spans
        )

    def plot(self) -> Picture:
        """Draw the spans of every stream over time.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.timelines import timeline_picture

        return timeline_picture(self)

    @property
    def ranks(self) -> list[int]:
        """Ranks that have spans."""
        return sorted({span.stream.rank for span in self.spans})

    def __repr__(self) -> str:
        step = format_seconds(self.step_time_s)
        return f"<Timeline {self.origin}: {len(self.spans)} spans, {len(self.ranks)} ranks, {step}>"

    def _repr_html_(self) -> str:
        """Show seconds of every rank in a notebook."""
        rows = [
            [
                str(rank),
                format_seconds(self.busy_s(rank)),
                format_seconds(self.bubble_s(rank)),
                format_seconds(self.exposed_communication_s(rank)),
                _gib(self.peak(rank)),
            ]
            for rank in self.ranks
        ]
        return f"<div><p>{escape(repr(self)[1:-1])}</p>{html_table(HEADS, rows)}</div>"


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes else ""


def timeline_handle(timeline: Timeline) -> TimelineHandle:
    """A timeline as a notebook shows it."""
    return TimelineHandle(
        origin=timeline.origin,
        spans=timeline.spans,
        counters=timeline.counters,
        flows=timeline.flows,
    )
