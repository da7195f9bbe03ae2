"""From the segments of all ranks to one measured Timeline, and its terms. Free of torch.

Ranks of one machine share a clock, so a wait can be split: until its message was sent, or until
the last rank came to the global norm, it is the pipeline's bubble, as is the time before a rank
begins its step and after it has ended it, when others have not. The rest of the norm is part of
the update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..spec.marks import COMMUNICATE_NORM
from ..spec.report import BREAKDOWN_TERMS
from ..spec.timeline import Span, Stream, StreamKind, Timeline
from .segments import MESSAGE, NORM, Segment

NS = 1e-9
BUBBLE = "bubble"
STREAM_ORDER: tuple[StreamKind, ...] = ("compute", "communication", "host_copy", "nvme", "host")
"""Where several streams of a rank are busy, the first of these decides the moment's term."""


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank's step: its segments, and when it sent each message (``pass to rank``)."""

    segments: tuple[Segment, ...]
    sent_ns: dict[str, int]

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"segments": [list(s) for s in self.segments], "sent_ns": self.sent_ns}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> RankTrace:
        """The inverse of :meth:`to_document`."""
        return cls(tuple(Segment(*row) for row in document["segments"]), document["sent_ns"])


def measured_timeline(traces: Sequence[RankTrace]) -> Timeline:
    """The step of all ranks on one clock that starts with the first of them.

    Args:
        traces: by rank; every rank has at least one segment.
    """
    begin_ns = min(trace.segments[0].start_ns for trace in traces)
    finish_ns = max(segment.end_ns for trace in traces for segment in trace.segments)
    norm_ns = _last_at_norm(traces)
    sent = {
        (int(target), key): when
        for trace in traces
        for label, when in trace.sent_ns.items()
        for key, _, target in [label.partition(" to ")]
    }
    spans: list[Span] = []
    for rank, trace in enumerate(traces):
        last_ns = max(segment.end_ns for segment in trace.segments)
        outside = [
            Segment(begin_ns, trace.segments[0].start_ns, BUBBLE, "before its step", ""),
            Segment(last_ns, finish_ns, BUBBLE, "after its step", ""),
        ]
        for segment in [*trace.segments, *(s for s in outside if s.end_ns > s.start_ns)]:
            for part in _resolve(segment, norm_ns, sent.get((rank, segment.key))):
                spans.append(_span(rank, part, begin_ns))
    return Timeline(origin="measured", spans=tuple(spans))


def _last_at_norm(traces: Sequence[RankTrace]) -> int | None:
    """When the last rank came to the global norm."""
    arrivals = [s.start_ns for trace in traces for s in trace.segments if s.term == NORM]
    return max(arrivals, default=None)


def _resolve(segment: Segment, norm_ns: int | None, sent_ns: int | None) -> list[Segment]:
    """Waits split into what nobody had sent yet and what was under way."""
    if segment.term == NORM:
        return _split(segment, norm_ns, "optimizer")
    if segment.term == MESSAGE:
        return _split(segment, sent_ns, "exposed_pp")
    return [segment]


def _split(segment: Segment, ready_ns: int | None, term: str) -> list[Segment]:
    """Bubble until ``ready_ns``, ``term`` after it."""
    start_ns, end_ns = segment.start_ns, segment.end_ns
    cut_ns = start_ns if ready_ns is None else min(max(ready_ns, start_ns), end_ns)
    parts = [
        segment._replace(end_ns=cut_ns, term=BUBBLE),
        segment._replace(start_ns=cut_ns, term=term),
    ]
    return [part for part in parts if part.end_ns > part.start_ns]


def _span(rank: int, segment: Segment, begin_ns: int) -> Span:
    term = segment.term
    if term.startswith("exposed_"):
        stream = Stream(rank=rank, kind="communication", name=term.removeprefix("exposed_"))
    elif segment.name == COMMUNICATE_NORM and term != BUBBLE:
        stream = Stream(rank=rank, kind="communication", name="norm")
    elif term in ("host", BUBBLE):
        stream = Stream(rank=rank, kind="host", name="host")
    else:
        stream = Stream(rank=rank, kind="compute", name="compute")
    return Span(
        stream=stream,
        name=segment.name,
        start_s=(segment.start_ns - begin_ns) * NS,
        duration_s=(segment.end_ns - segment.start_ns) * NS,
        term=term,
        details={"pass": segment.within} if segment.within else {},
    )


def measured_breakdown(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds of the step by term on a rank; they add up to the timeline's step time.

    Where streams overlap, compute hides communication and communication hides the host. What
    no span covers is ``unattributed``.
    """
    terms = dict.fromkeys(BREAKDOWN_TERMS, 0.0)
    edges: list[tuple[float, int, int]] = []
    spans = [span for span in timeline.spans if span.stream.rank == rank]
    spans.sort(key=lambda span: STREAM_ORDER.index(span.stream.kind))
    for number, span in enumerate(spans):
        edges += [(span.start_s, 1, number), (span.end_s, 0, number)]
    edges.sort()
    active: set[int] = set()
    clock_s = 0.0
    for time_s, begins, number in edges:
        if active:
            terms[spans[min(active)].term] += time_s - clock_s
        clock_s = time_s
        (active.add if begins else active.discard)(number)
    terms["unattributed"] = timeline.step_time_s - sum(terms.values())
    return terms


def critical_rank(timeline: Timeline) -> int:
    """The rank that waits least for others, the lowest number on a tie."""
    waiting: dict[int, float] = defaultdict(float)
    for span in timeline.spans:
        waiting[span.stream.rank] += span.duration_s if span.term == BUBBLE else 0.0
    return min(waiting, key=lambda rank: (round(waiting[rank], 9), rank))
