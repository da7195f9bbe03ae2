"""Pipeline schedules: complete, causal, free of deadlock, and as short as theory says."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.event_oracle import makespan

from shardwright.spec.report.trace_marks import pass_key
from shardwright.spec.rules.plan_rules import schedule_violation
from shardwright.spec.schedules.stage_order import (
    SCHEDULE_KINDS,
    Pass,
    ScheduleKind,
    first_in_flight,
    stage_order,
    warm_up,
)


@st.composite
def shapes(draw: st.DrawFn, most: int = 12) -> tuple[ScheduleKind, int, int, int]:
    """(kind, stages, chunks, micro-batches), legal."""
    kind = draw(st.sampled_from(SCHEDULE_KINDS))
    stages = draw(st.integers(2 if kind == "interleaved" else 1, most))
    chunks = draw(st.integers(2, 4)) if kind == "interleaved" else 1
    batches = draw(st.integers(1, 30))
    if kind == "interleaved":
        batches = draw(st.integers(1, 6)) * stages
    assert schedule_violation(kind, stages, chunks, batches, 10**6) is None
    return kind, stages, chunks, batches


def orders(kind: ScheduleKind, stages: int, chunks: int, batches: int) -> list[tuple[Pass, ...]]:
    return [stage_order(kind, s, stages, chunks, batches) for s in range(stages)]


@given(shapes())
@settings(max_examples=150)
def test_every_pass_once_and_backward_after_forward(
    shape: tuple[ScheduleKind, int, int, int],
) -> None:
    _, _, chunks, batches = shape
    for order in orders(*shape):
        pairs = [(c, m) for c in range(chunks) for m in range(batches)]
        wanted = {Pass(f, c, m) for f in (True, False) for c, m in pairs}
        assert Counter(order) == Counter(wanted)
        place = {item: number for number, item in enumerate(order)}
        assert all(place[Pass(True, c, m)] < place[Pass(False, c, m)] for c, m in pairs)


@given(shapes())
@settings(max_examples=150)
def test_each_direction_of_a_chunk_runs_its_micro_batches_in_order(
    shape: tuple[ScheduleKind, int, int, int],
) -> None:
    """Messages between two stages are matched by order, so it must be the same on both sides."""
    for order in orders(*shape):
        seen: dict[tuple[bool, int], int] = {}
        for item in order:
            key = (item.forward, item.chunk)
            assert item.micro_batch == seen.get(key, -1) + 1
            seen[key] = item.micro_batch


@given(shapes())
@settings(max_examples=150)
def test_first_in_flight_counts_the_order(shape: tuple[ScheduleKind, int, int, int]) -> None:
    kind, stages, chunks, batches = shape
    for stage, order in enumerate(orders(*shape)):
        before = order[: [p.forward for p in order].index(False)]
        counted = [sum(item.chunk == c for item in before) for c in range(chunks)]
        assert first_in_flight(kind, stage, stages, chunks, batches) == counted
        total = chunks * batches
        assert len(before) == min(warm_up(kind, stage, stages, chunks, batches) + 1, total)


@given(shapes(), st.integers(1, 50), st.integers(1, 50))
@settings(max_examples=150)
def test_no_deadlock_and_the_closed_form(
    shape: tuple[ScheduleKind, int, int, int], forward: int, backward: int
) -> None:
    """Equal stages without messages take (m + (p - 1)/v) · (t_f + t_b).

    Huang et al., 2019; Narayanan et al., 2021b, section 2.2: the bubble is (p - 1)/(v·m) of the
    ideal time. Durations are those of one chunk, so a stage has v of them a micro-batch.
    """
    _, stages, chunks, batches = shape
    ideal = (batches * chunks + stages - 1) * (forward + backward)
    found = makespan(orders(*shape), lambda _, item: forward if item.forward else backward, {})
    assert found == pytest.approx(ideal, rel=1e-12)


@given(shapes(8), st.integers(0, 2**32))
@settings(max_examples=100)
def test_no_deadlock_for_any_durations_and_messages(
    shape: tuple[ScheduleKind, int, int, int], seed: int
) -> None:
    _, stages, chunks, batches = shape
    source = random.Random(seed)  # hypothesis' own randoms take most of the test's time
    durations = {
        (s, f, c): source.uniform(0.1, 5)
        for s in range(stages)
        for f in (True, False)
        for c in range(chunks)
    }
    travel = {(f, p): source.uniform(0, 3) for f in (True, False) for p in range(stages * chunks)}
    work = max(
        batches * sum(durations[s, f, c] for f in (True, False) for c in range(chunks))
        for s in range(stages)
    )
    found = makespan(orders(*shape), lambda s, p: durations[s, p.forward, p.chunk], travel)
    assert found >= work * (1 - 1e-12)


def test_more_stages_hold_more_in_flight_and_gpipe_holds_all() -> None:
    for stages in (2, 4, 8):
        held = [sum(first_in_flight("1f1b", s, stages, 1, 64)) for s in range(stages)]
        assert held == list(range(stages, 0, -1))
        assert all(first_in_flight("gpipe", s, stages, 1, 64) == [64] for s in range(stages))


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        (("interleaved", 1, 2, 4), "pp > 1"),
        (("interleaved", 4, 1, 4), "vpp > 1"),
        (("interleaved", 4, 2, 6), "multiples"),
        (("1f1b", 4, 2, 8), "interleaved"),
        (("gpipe", 9, 1, 8), "exceed"),
    ],
)
def test_illegal_shapes_are_refused_by_name(
    shape: tuple[ScheduleKind, int, int, int], word: str
) -> None:
    reason = schedule_violation(*shape, 8)
    assert reason is not None
    assert word in reason


def test_names_of_passes_say_direction_chunk_and_micro_batch() -> None:
    passes = (Pass(True, 1, 3), Pass(False, 0, 2), Pass(False, 0, 2, "weight"))
    assert [pass_key(one) for one in passes] == ["F 1 3", "B 0 2", "W 0 2"]
