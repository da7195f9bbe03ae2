"""A step's timeline as a picture: rows of streams, term colors."""

from __future__ import annotations

from collections import defaultdict

from ....spec.report.timeline import STREAM_KINDS, Stream, Timeline
from ....spec.units import format_seconds
from .canvas import (
    FONT_SIZE,
    Picture,
    figure,
    label,
    scaled_seconds,
    term_colour,
    term_label,
    title,
)

MAX_STREAMS = 48
SEEN = 2e-3
"""Share of the step below which a stream would be an empty row."""


def timeline_picture(timeline: Timeline) -> Picture:
    """Every span of the first streams, all ranks together."""
    streams = _streams(timeline)
    shown = streams[:MAX_STREAMS]
    made, axes = figure(11, max(2.2, 1.0 + 0.28 * len(shown)))
    factor, unit = scaled_seconds(timeline.step_time_s)
    rows = {stream: row for row, stream in enumerate(shown)}
    boxes: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for span in timeline.spans:
        if span.stream in rows:
            box = (span.start_s * factor, span.duration_s * factor)
            boxes[(rows[span.stream], span.term)].append(box)
    seen: set[str] = set()
    for (row, term), spans in boxes.items():
        colour, opacity = term_colour(term)
        named = None if term in seen else term_label(term)
        seen.add(term)
        axes.broken_barh(
            spans,
            (row - 0.38, 0.76),
            facecolors=colour,
            edgecolors=colour,
            alpha=opacity,
            label=named,
            linewidth=0.3,
        )
    axes.set_yticks(range(len(shown)), [_name(stream) for stream in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, timeline.step_time_s * factor)
    label(axes, unit)
    more = f"; {len(streams) - len(shown)} streams left out" if len(streams) > len(shown) else ""
    title(axes, f"{timeline.origin} step, {format_seconds(timeline.step_time_s)}{more}")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=FONT_SIZE - 1, frameon=False)
    picture: Picture = made
    return picture


def _streams(timeline: Timeline) -> list[Stream]:
    busy_s: dict[Stream, float] = defaultdict(float)
    for span in timeline.spans:
        busy_s[span.stream] += span.duration_s
    least_s = SEEN * timeline.step_time_s
    streams = [stream for stream, seconds in busy_s.items() if seconds >= least_s]
    return sorted(streams, key=lambda s: (s.rank, STREAM_KINDS.index(s.kind), s.name))


def _name(stream: Stream) -> str:
    name = "" if stream.name == stream.kind else stream.name
    return f"rank {stream.rank} {term_label(stream.kind)} {name}".strip()
