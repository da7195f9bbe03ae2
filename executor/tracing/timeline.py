"""Measured Timeline and its terms from all ranks' segments; needs no torch.

Ranks of one machine share a clock, so waits can be split: until its message was sent, or the last
rank reached the global norm, a wait is pipeline bubble, as is idle time before and after a rank's
step. The rest of the norm belongs to the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...spec.report.overlap import EXPOSED, cut, exposed_term, overlapped_term, union
from ...spec.report.report import BREAKDOWN_TERMS
from ...spec.report.timeline import STREAM_KINDS, Counter, Span, Stream, StreamKind, Timeline
from ...spec.report.trace_marks import COMMUNICATE_NORM
from .segments import MESSAGE, NORM, Segment

NS = 1e-9
BUBBLE = "bubble"
ALLOCATED = "allocated_bytes"
"""The counter's name in simulated timelines too."""
HOST_COPIES = ("Memcpy HtoD", "Memcpy DtoH")


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank's step: segments, and message send times (``pass to rank``).

    ``allocated``: moments, in nanoseconds on the segments' clock, with the device's live bytes;
    empty if memory was not followed.
    """

    segments: tuple[Segment, ...]
    sent_ns: dict[str, int]
    allocated: tuple[tuple[int, int], ...] = ()

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "segments": [list(s) for s in self.segments],
            "sent_ns": self.sent_ns,
            "allocated": [list(point) for point in self.allocated],
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> RankTrace:
        """The inverse of :meth:`to_document`."""
        segments = tuple(Segment(*row) for row in document["segments"])
        points = tuple((when, size) for when, size in document["allocated"])
        return cls(segments, document["sent_ns"], points)

    def shifted(self, by_ns: int) -> RankTrace:
        """The same trace on a clock ahead by ``by_ns``."""
        return RankTrace(
            tuple(
                s._replace(start_ns=s.start_ns + by_ns, end_ns=s.end_ns + by_ns)
                for s in self.segments
            ),
            {label: when + by_ns for label, when in self.sent_ns.items()},
            tuple((when + by_ns, size) for when, size in self.allocated),
        )


def measured_timeline(traces: Sequence[RankTrace]) -> Timeline:
    """The step of all ranks on one clock, from the first start.

    Every rank has at least one segment.
    """
    begin_ns = min(trace.segments[0].start_ns for trace in traces)
    finish_ns = max(segment.end_ns for trace in traces for segment in trace.segments)
    norm_ns = _last_at_norm(traces)
    sent: dict[tuple[int, str], int] = {}  # the last message, where a pass waits for several
    for label, when in (item for trace in traces for item in trace.sent_ns.items()):
        key, _, target = label.partition(" to ")
        sent[int(target), key] = max(when, sent.get((int(target), key), when))
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
    counters = tuple(
        Counter(
            rank=rank,
            name=ALLOCATED,
            points=tuple(((when - begin_ns) * NS, float(size)) for when, size in trace.allocated),
        )
        for rank, trace in enumerate(traces)
        if trace.allocated
    )
    return Timeline(origin="measured", spans=tuple(_with_overlap(spans)), counters=counters)


def _with_overlap(spans: list[Span]) -> list[Span]:
    """Spans with communication cut where the rank's kernels begin or cease to overlap it."""
    kernels: dict[int, list[tuple[float, float]]] = {}
    for span in spans:
        if span.stream.kind == "compute":
            kernels.setdefault(span.stream.rank, []).append((span.start_s, span.end_s))
    busy = {rank: union(intervals) for rank, intervals in kernels.items()}
    pieces: list[Span] = []
    for span in spans:
        if not span.term.startswith(EXPOSED):
            pieces.append(span)
            continue
        for start_s, end_s, is_overlapped in cut(
            (span.start_s, span.end_s), busy.get(span.stream.rank, ())
        ):
            term = overlapped_term(span.term) if is_overlapped else span.term
            pieces.append(replace(span, start_s=start_s, duration_s=end_s - start_s, term=term))
    return pieces


def _last_at_norm(traces: Sequence[RankTrace]) -> int | None:
    arrivals = [s.start_ns for trace in traces for s in trace.segments if s.term == NORM]
    return max(arrivals, default=None)


def _resolve(segment: Segment, norm_ns: int | None, sent_ns: int | None) -> list[Segment]:
    if segment.term == NORM:
        return _split(segment, norm_ns, "optimizer")
    if segment.term == MESSAGE:
        return _split(segment, sent_ns, "exposed_pp")
    return [segment]


def _split(segment: Segment, ready_ns: int | None, term: str) -> list[Segment]:
    start_ns, end_ns = segment.start_ns, segment.end_ns
    cut_ns = start_ns if ready_ns is None else min(max(ready_ns, start_ns), end_ns)
    parts = [
        segment._replace(end_ns=cut_ns, term=BUBBLE),
        segment._replace(start_ns=cut_ns, term=term),
    ]
    return [part for part in parts if part.end_ns > part.start_ns]


def _span(rank: int, segment: Segment, begin_ns: int) -> Span:
    kind, name = _stream(segment)
    if segment.stream is not None:
        name = f"{name} {segment.stream}"
    return Span(
        stream=Stream(rank=rank, kind=kind, name=name),
        name=segment.name,
        start_s=(segment.start_ns - begin_ns) * NS,
        duration_s=(segment.end_ns - segment.start_ns) * NS,
        term=segment.term,
        details={"pass": segment.within} if segment.within else {},
    )


def _stream(segment: Segment) -> tuple[StreamKind, str]:
    if segment.term.startswith("exposed_"):
        return "communication", segment.term.removeprefix("exposed_")
    if segment.stream is not None and segment.name.startswith(HOST_COPIES):
        return "host_copy", "to device" if "HtoD" in segment.name else "to host"
    if segment.name == COMMUNICATE_NORM and segment.term != BUBBLE:
        return "communication", "norm"
    if segment.term in ("host", BUBBLE):
        return "host", "host" if segment.stream is None else "waits"
    return "compute", "compute"


def measured_breakdown(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds by term on a rank; their sum is the step time.

    Where streams overlap, compute hides communication and communication hides the host. Uncovered
    time is ``unattributed``.
    """
    terms = dict.fromkeys(BREAKDOWN_TERMS, 0.0)
    edges: list[tuple[float, int, int]] = []
    spans = [span for span in timeline.spans if span.stream.rank == rank]
    spans.sort(key=lambda span: STREAM_KINDS.index(span.stream.kind))
    for number, span in enumerate(spans):
        edges += [(span.start_s, 1, number), (span.end_s, 0, number)]
    edges.sort()
    active: set[int] = set()
    clock_s = 0.0
    for time_s, begins, number in edges:
        if active:
            term = exposed_term(spans[min(active)].term)
            terms[term] = terms.get(term, 0.0) + time_s - clock_s
        clock_s = time_s
        (active.add if begins else active.discard)(number)
    terms["unattributed"] = timeline.step_time_s - sum(terms.values())
    return terms


def critical_rank(timeline: Timeline) -> int:
    """The rank that waits least for others, the lowest on a tie.

    A wait hidden by computation, as for an early posted receive, counts as none.
    """
    ranks = sorted({span.stream.rank for span in timeline.spans})
    waiting = {rank: measured_breakdown(timeline, rank)[BUBBLE] for rank in ranks}
    return min(waiting, key=lambda rank: (round(waiting[rank], 9), rank))
