"""What a stage holds at its fullest moment is what its passes leave it with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwright.planner.space import in_flight
from shardwright.planner.space.in_flight import (
    STEADY_PER_STAGE,
    WAITING_SHARE,
    InFlight,
    peak_in_flight,
)
from shardwright.spec.rules.plan_rules import schedule_violation
from shardwright.spec.schedules.stage_order import (
    ALL_KINDS,
    ScheduleKind,
    first_in_flight,
    stage_order,
)

Case = tuple[ScheduleKind, int, int, int, int]
Moment = tuple[tuple[int, int, bool], ...]
ROUNDING = 1e-9
STAGES = st.integers(1, 8)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A stage of a legal pipeline: its schedule, number, stages, chunks, micro-batches."""
    kind = draw(st.sampled_from(ALL_KINDS))
    stages = draw(STAGES)
    chunks = {"interleaved": draw(st.integers(2, 5)), "zbv": 2, "dualpipe": 2}.get(kind, 1)
    rounds = draw(st.integers(1, 8))
    microbatches = rounds * stages if kind == "interleaved" else draw(st.integers(1, 60))
    assume(schedule_violation(kind, stages, chunks, microbatches, stages * chunks) is None)
    return kind, draw(st.integers(0, stages - 1)), stages, chunks, microbatches


def moments(case: Case) -> Iterator[Moment]:
    """After each forward of a stage: in flight, waiting and summed, counted set by set."""
    chunks = range(case[3])
    forward, back, done = ({c: set[int]() for c in chunks} for _ in range(3))
    for item in stage_order(*case):
        if item.forward:
            forward[item.chunk].add(item.micro_batch)
            yield tuple(
                (len(forward[c] - back[c]), len(back[c] - done[c]), bool(done[c])) for c in chunks
            )
            continue
        if item.part != "weight":
            back[item.chunk].add(item.micro_batch)
        if item.part != "input":
            done[item.chunk].add(item.micro_batch)


def fullness(moment: Moment) -> float:
    return sum(flying + WAITING_SHARE * waiting for flying, waiting, _ in moment)


def found_at(case: Case) -> Moment:
    own = peak_in_flight(*case)
    return tuple((int(h.in_flight), int(h.waiting), h.accumulated) for h in own)


@given(cases())
def test_it_is_a_moment_of_the_stage_and_none_is_fuller(case: Case) -> None:
    every, found = list(moments(case)), found_at(case)
    assert found in every
    assert fullness(found) >= max(map(fullness, every)) - ROUNDING


@given(cases())
def test_it_is_no_emptier_than_before_the_first_backward(case: Case) -> None:
    assert fullness(found_at(case)) >= sum(first_in_flight(*case)) - ROUNDING


@given(cases())
def test_gradients_count_where_a_moment_as_full_has_them(case: Case) -> None:
    every, found = list(moments(case)), found_at(case)
    alike = [moment for moment in every if fullness(moment) >= fullness(found) - ROUNDING]
    assert sum(s for *_, s in found) == max(sum(s for *_, s in moment) for moment in alike)


def test_more_micro_batches_make_no_moment_fuller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted over the whole step."""
    compared = 0
    for kind in ALL_KINDS:
        for stages in (1, 2, 3, 5, 8):
            for chunks in {"interleaved": (2, 3, 5), "zbv": (2,), "dualpipe": (2,)}.get(kind, (1,)):
                for stage in range(stages):
                    case = (kind, stage, stages, chunks, (STEADY_PER_STAGE + 3) * stages)
                    settled = peak_in_flight(*case)
                    with monkeypatch.context() as patch:
                        patch.setattr(in_flight, "STEADY_PER_STAGE", 10**9)
                        assert peak_in_flight(*case) == settled, case
                    compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("case", "meant"),
    [
        (("gpipe", 1, 4, 1, 6), [InFlight(6, backward=True)]),
        (("1f1b", 0, 4, 1, 8), [InFlight(4, 0, True, True)]),
        (
            ("1f1b", 0, 4, 1, 4),
            [InFlight(4, 0, False, True)],
        ),  # no forward comes after the first backward
        (("1f1b", 3, 4, 1, 8), [InFlight(1, 0, True, True)]),
        (("1f1b", 2, 4, 1, 1), [InFlight(1, 0, False, True)]),
        (("zero_bubble", 0, 4, 1, 8), [InFlight(4, 0, True)]),
        (("zero_bubble", 3, 4, 1, 8), [InFlight(1, 3, True)]),
        (("zero_bubble", 3, 4, 1, 2), [InFlight(1, 1)]),
    ],
)
def test_small_schedules_hold_what_they_do_by_hand(case: Case, meant: list[InFlight]) -> None:
    assert list(peak_in_flight(*case)) == meant
