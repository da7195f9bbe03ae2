"""Timeline: spans on typed streams, of a simulated or a measured step.

A stream belongs to a rank (one representative rank a stage when simulated) and runs its spans
in order, one at a time. Step time, busy time and exposed communication are views of it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from ..errors import InputError

StreamKind = Literal["compute", "communication", "host_copy", "nvme", "host", "technique"]
"""``technique``: a lane that shows a technique's work, beside the streams that count it."""
STREAM_KINDS: tuple[StreamKind, ...] = get_args(StreamKind)
"""Where several streams of a rank are busy, the first of these decides the moment's term."""
NESTING_SLACK_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A queue of work: its rank, kind, and link level or direction."""

    rank: int
    kind: StreamKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of work; ``term`` is its breakdown term, or ``overlapped_…`` of hidden traffic."""

    stream: Stream
    name: str
    start_s: float
    duration_s: float
    term: str
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def end_s(self) -> float:
        """End of the span."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A rank's value over time, such as live bytes."""

    rank: int
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A message from the end of span ``source`` to span ``target``."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Spans, counters and messages of one step."""

    origin: Literal["simulated", "measured"]
    spans: tuple[Span, ...]
    counters: tuple[Counter, ...] = ()
    flows: tuple[Flow, ...] = ()

    @property
    def step_time_s(self) -> float:
        """Seconds from the first start to the last end."""
        if not self.spans:
            return 0.0
        start_s = min(span.start_s for span in self.spans)
        return max(span.end_s for span in self.spans) - start_s

    def busy_s(self, rank: int, kind: StreamKind = "compute") -> float:
        """Seconds in which the rank's streams of this kind are busy."""
        spans = [s for s in self.spans if s.stream.rank == rank and s.stream.kind == kind]
        return _union_s((s.start_s, s.end_s) for s in spans)

    def bubble_s(self, rank: int) -> float:
        """Seconds of the step in which the rank's compute stream is idle."""
        return self.step_time_s - self.busy_s(rank)

    def exposed_communication_s(self, rank: int) -> float:
        """Seconds in which the rank communicates while its compute stream is idle."""
        compute = [s for s in self.spans if s.stream.rank == rank and s.stream.kind == "compute"]
        communication = [
            s for s in self.spans if s.stream.rank == rank and s.stream.kind == "communication"
        ]
        busy_s = _union_s((s.start_s, s.end_s) for s in [*compute, *communication])
        return busy_s - _union_s((s.start_s, s.end_s) for s in compute)

    def term_seconds(self, rank: int) -> dict[str, float]:
        """Seconds of each breakdown term on the rank's compute stream."""
        total: dict[str, float] = defaultdict(float)
        for span in self.spans:
            if span.stream.rank == rank and span.stream.kind == "compute":
                total[span.term] += span.duration_s
        return dict(total)

    def peak(self, rank: int, name: str = "allocated_bytes") -> float:
        """Largest value of a counter of the rank.

        0 if it has none.
        """
        return max(
            (v for c in self.counters if (c.rank, c.name) == (rank, name) for _, v in c.points),
            default=0.0,
        )

    def overlapping(self) -> list[tuple[Span, Span]]:
        """Neighboring spans of one stream that overlap; empty for a sound timeline."""
        by_stream: dict[Stream, list[Span]] = defaultdict(list)
        for span in self.spans:
            by_stream[span.stream].append(span)
        pairs = []
        for spans in by_stream.values():
            spans.sort(key=lambda s: (s.start_s, s.end_s))
            pairs += [(a, b) for a, b in pairwise(spans) if b.start_s < a.end_s - NESTING_SLACK_S]
        return pairs

    def to_perfetto(self) -> str:
        """Trace Event JSON for Perfetto and Chrome.

        pid = rank, tid = stream, times in microseconds.
        """
        events: list[dict[str, Any]] = []
        numbers = _stream_numbers(self.spans)
        for stream, tid in numbers.items():
            label = {"name": f"{stream.kind} {stream.name}".strip()}
            events.append(
                {"ph": "M", "name": "thread_name", "pid": stream.rank, "tid": tid, "args": label}
            )
        for rank in sorted({stream.rank for stream in numbers}):
            label = {"name": f"rank {rank}"}
            events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": label})
        for span in self.spans:
            events.append(_complete_event(span, numbers[span.stream]))
        for counter in self.counters:
            events += _counter_events(counter)
        for number, flow in enumerate(self.flows):
            ends = self.spans[flow.source], self.spans[flow.target]
            events += _flow_events(number, *ends, numbers)
        document = {"traceEvents": events, "displayTimeUnit": "ms", "origin": self.origin}
        return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def _union_s(intervals: Iterable[tuple[float, float]]) -> float:
    total, covered_until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > covered_until:
            total += end - max(start, covered_until)
            covered_until = end
    return total


def _stream_numbers(spans: Iterable[Span]) -> dict[Stream, int]:
    numbers: dict[Stream, int] = {}
    for span in spans:
        numbers.setdefault(span.stream, len(numbers) + 1)
    return numbers


def _complete_event(span: Span, tid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.term,
        "pid": span.stream.rank,
        "tid": tid,
        "ts": span.start_s * 1e6,
        "dur": span.duration_s * 1e6,
        "args": dict(span.details),
    }


def _counter_events(counter: Counter) -> list[dict[str, Any]]:
    return [
        {"ph": "C", "name": counter.name, "pid": counter.rank, "ts": t * 1e6, "args": {"value": v}}
        for t, v in counter.points
    ]


def _flow_events(
    number: int, source: Span, target: Span, numbers: Mapping[Stream, int]
) -> list[dict[str, Any]]:
    common = {"name": "p2p", "cat": "p2p", "id": number}
    return [
        {
            **common,
            "ph": "s",
            "pid": source.stream.rank,
            "tid": numbers[source.stream],
            "ts": source.end_s * 1e6,
        },
        {
            **common,
            "ph": "f",
            "bp": "e",
            "pid": target.stream.rank,
            "tid": numbers[target.stream],
            "ts": target.start_s * 1e6,
        },
    ]


def from_perfetto(text: str, where: str) -> Timeline:
    """Read a Timeline from :meth:`Timeline.to_perfetto`'s Trace Event JSON.

    Raises:
        InputError: the document is not such a trace.
    """
    from ..codec import parse_json

    document = parse_json(text, where)
    try:
        events = document["traceEvents"]
        streams = {
            (e["pid"], e["tid"]): _stream_from_label(e["pid"], e["args"]["name"])
            for e in events
            if e["ph"] == "M" and e["name"] == "thread_name"
        }
        spans = tuple(
            Span(
                stream=streams[(e["pid"], e["tid"])],
                name=e["name"],
                start_s=e["ts"] / 1e6,
                duration_s=e["dur"] / 1e6,
                term=e["cat"],
                details=e.get("args", {}),
            )
            for e in events
            if e["ph"] == "X"
        )
        points: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
        for e in events:
            if e["ph"] == "C":
                points[(e["pid"], e["name"])].append((e["ts"] / 1e6, e["args"]["value"]))
        counters = tuple(
            Counter(rank=rank, name=name, points=tuple(values))
            for (rank, name), values in points.items()
        )
        return Timeline(origin=document["origin"], spans=spans, counters=counters)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(where, f"{type(error).__name__} {error}", "a Shardwright trace") from None


def _stream_from_label(rank: int, label: str) -> Stream:
    kind, _, name = label.partition(" ")
    if kind not in STREAM_KINDS:
        raise ValueError(f"unknown stream {label!r}")
    return Stream(rank=rank, kind=kind, name=name)
