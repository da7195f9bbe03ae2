"""Timelines tell traffic that shows from traffic that hides."""

from __future__ import annotations

import json

import pytest

import shardwright as sw
from shardwright.spec.report.overlap import union
from shardwright.spec.report.timeline import Span, Timeline

QUESTION = {"global_batch": 64, "seq_len": 1024, "shard": "zero3", "calibration": "none"}


def timeline(cluster: str, **flags: object) -> Timeline:
    return sw.simulate("llama-3-8b", cluster, **QUESTION, **flags).timeline


def sharing(span: Span, busy: list[tuple[float, float]]) -> float:
    """Seconds of a span in which there is other work."""
    return sum(max(0.0, min(b, span.end_s) - max(a, span.start_s)) for a, b in busy)


@pytest.mark.parametrize(
    ("cluster", "flags", "hides"),
    [
        ("2x8xH100", {}, True),
        ("2x8xA100", {"tp": 2}, True),
        ("2x8xH100", {"overlap": "none"}, False),
        ("4x8xV100", {"pp": 2, "dtype": "fp16"}, True),
    ],
)
def test_a_part_of_traffic_shows_or_hides(
    cluster: str, flags: dict[str, object], hides: bool
) -> None:
    made = timeline(cluster, **flags)
    assert made.overlapping() == []
    ranks = {span.stream.rank for span in made.spans}
    for rank in ranks:
        spans = [span for span in made.spans if span.stream.rank == rank]
        busy = union((s.start_s, s.end_s) for s in spans if s.stream.name != "dp")
        for span in (s for s in spans if s.stream.name == "dp"):
            expected = span.duration_s if span.term == "overlapped_dp" else 0.0
            assert sharing(span, busy) == pytest.approx(expected, abs=1e-6 * made.step_time_s)
        shown_s = sum(
            s.duration_s for s in spans if s.term.startswith("exposed_") or s.name == "norm"
        )
        assert shown_s == pytest.approx(made.exposed_communication_s(rank), rel=1e-6)
    terms = {span.term for span in made.spans}
    assert "exposed_dp" in terms
    assert ("overlapped_dp" in terms) == hides
    events = json.loads(made.to_perfetto())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == terms
