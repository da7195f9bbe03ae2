"""Schedules with split backwards: complete, never stuck, and as short and lean as published."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from checks.schedule_checks import fault, held, orders, passes_left, random_shape
from oracles.event_oracle import ends, makespan, position_of

from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.rules.plan_rules import schedule_stack_violation, schedule_violation
from shardwright.spec.schedules.stage_order import (
    ALL_KINDS,
    SPLIT_KINDS,
    V_KINDS,
    Pass,
    ScheduleKind,
    chunk_location,
    chunk_position,
    first_in_flight,
    stage_order,
    warm_up,
)

RANDOM_SHAPES = 1000
"""A tenth of those of the evidence item of the same name."""
SHAPES = [(2, 4), (2, 9), (3, 6), (4, 8), (4, 19), (8, 16), (8, 40)]
"""Stages and micro-batches, of which all schedules here need twice as many."""


def chunks_of(kind: ScheduleKind) -> int:
    return 2 if kind in V_KINDS else 1


def seconds(item: Pass, times: tuple[float, float, float]) -> float:
    """Seconds of a pass, from those of forward, input gradient and weight gradient."""
    if item.forward:
        return times[0]
    return {"whole": times[1] + times[2], "input": times[1], "weight": times[2]}[item.part]


def step_s(
    kind: ScheduleKind, stages: int, micro_batches: int, times: tuple[float, float, float]
) -> float:
    found = orders((kind, stages, chunks_of(kind), micro_batches))
    return makespan(found, lambda _, item: seconds(item, times), {}, kind)


def test_orders_of_random_shapes_are_complete_and_never_stuck() -> None:
    source = random.Random(0)
    seen = set()
    for _ in range(RANDOM_SHAPES):
        shape = random_shape(source)
        assert fault(shape, orders(shape)) is None
        seen.add(shape[0])
    assert seen == set(ALL_KINDS)


def test_what_is_wrong_with_an_order_is_found() -> None:
    shape = ("zbv", 3, 2, 6)
    good = orders(shape)
    missing = [good[0][:-1], *good[1:]]
    assert "missing" in (fault(shape, missing) or "")
    swapped = [(good[0][1], good[0][0], *good[0][2:]), *good[1:]]
    assert "out of turn" in (fault(shape, swapped) or "")
    first = next(n for n, item in enumerate(good[2]) if not item.forward)
    early = [*good[:2], (good[2][first], *good[2][:first], *good[2][first + 1 :])]
    assert "comes before" in (fault(shape, early) or "")
    stuck = [(*(i for i in good[0] if i.forward and i.chunk == 1),
              *(i for i in good[0] if not (i.forward and i.chunk == 1))), *good[1:]]  # fmt: skip
    assert passes_left(shape, stuck) > 0


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
@pytest.mark.parametrize("times", [(1, 1, 1), (2, 3, 1), (3, 4, 2), (5, 5, 2)])
def test_zero_bubble_has_the_bubble_of_zb_h1(
    stages: int, batches: int, times: tuple[int, int, int]
) -> None:
    """(p - 1)(T_F + T_B - T_W): Qi et al., 2024, table 1."""
    forward, backward, weight = times
    bubble = (stages - 1) * (forward + backward - weight)
    assert step_s("zero_bubble", stages, batches, times) == batches * sum(times) + bubble


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_zbv_leaves_no_stage_idle_between_its_passes(stages: int, batches: int) -> None:
    """With T_F = T_B = T_W (Qi et al., 2024, section 4): stages only start after one another."""
    found = orders(("zbv", stages, 2, batches))
    done = ends(found, lambda _, item: seconds(item, (1, 1, 1)), {}, "zbv")
    for stage, order in enumerate(found):
        finished = [done[stage, item] for item in order]
        assert finished[0] == stage + 1
        assert all(after - before == 1 for before, after in pairwise(finished))
    assert max(done.values()) == batches * 6 + stages - 1


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
@pytest.mark.parametrize("times", [(1, 1, 1), (2, 2, 1), (3, 3, 2)])
def test_dualpipe_has_the_published_bubble(
    stages: int, batches: int, times: tuple[int, int, int]
) -> None:
    """(P/2 - 1)(F&B + B - 3W): DeepSeek-V3, 2024, table 2.

    P is the chunks of the V, twice its stages, B the whole backward, and F&B as long as both
    where nothing can hide. It holds where input gradients take as long as forwards.
    """
    forward, backward, weight = times
    whole = backward + weight
    bubble = (2 * stages / 2 - 1) * ((forward + whole) + whole - 3 * weight)
    assert step_s("dualpipe", stages, batches, times) == 2 * batches * sum(times) + bubble


@pytest.mark.parametrize(("stages", "batches"), SHAPES)
def test_every_stage_holds_what_was_published(stages: int, batches: int) -> None:
    """Of p stages: ZB-H1 and ZBV p micro-batches (a V's are two chunks), DualPipe P + 1 chunks."""
    wanted = {"zero_bubble": stages, "zbv": 2 * stages, "dualpipe": 2 * stages + 1}
    for kind in SPLIT_KINDS:
        found = orders((kind, stages, chunks_of(kind), batches))
        assert [held(order) for order in found] == [wanted[kind]] * stages
    first = orders(("1f1b", stages, 1, batches))[0]
    assert held(first) == stages  # the worst stage of 1F1B


def test_first_in_flight_and_warm_up_count_the_order() -> None:
    source = random.Random(1)
    for _ in range(300):
        kind, stages, chunks, batches = random_shape(source)
        for stage in range(stages):
            order = stage_order(kind, stage, stages, chunks, batches)
            before = order[: [p.forward for p in order].index(False)]
            counted = [sum(item.chunk == c for item in before) for c in range(chunks)]
            assert first_in_flight(kind, stage, stages, chunks, batches) == counted
            most = min(warm_up(kind, stage, stages, chunks, batches) + 1, chunks * batches)
            assert len(before) == most


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_places_of_chunks_are_the_inverse_of_their_positions(kind: ScheduleKind) -> None:
    for stages in (1, 2, 5):
        places = [chunk_location(kind, position, stages) for position in range(2 * stages)]
        assert len(set(places)) == 2 * stages
        for position, (stage, chunk) in enumerate(places):
            assert chunk_position(kind, stage, chunk, stages) == position
            assert position_of(kind, stage, chunk, stages) == position
    turn = [chunk_location(kind, position, 3)[0] for position in range(6)]
    assert turn == ([0, 1, 2, 2, 1, 0] if kind in V_KINDS else [0, 1, 2, 0, 1, 2])


def test_only_dualpipe_overlaps_and_always_a_forward_with_a_backward() -> None:
    for kind in ALL_KINDS:
        chunks = 2 if kind in (*V_KINDS, "interleaved") else 1
        for order in orders((kind, 4, chunks, 16)):
            pairs = [(a, b) for a, b in pairwise(order) if a.overlaps]
            assert bool(pairs) == (kind == "dualpipe")
            for one, other in pairs:
                assert one.forward
                assert not other.forward
                assert one.chunk != other.chunk
                assert other.part == "whole"


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        (("zbv", 1, 2, 4), "pp > 1"),
        (("zero_bubble", 1, 1, 4), "pp > 1"),
        (("zbv", 4, 1, 8), "vpp 2"),
        (("dualpipe", 2, 3, 8), "vpp 2"),
        (("dualpipe", 4, 2, 7), "at least 2 x pp (8)"),
        (("zero_bubble", 4, 2, 8), "one virtual stage"),
        (("zbv", 5, 2, 8), "exceed"),
    ],
)
def test_illegal_shapes_are_refused_by_name(
    shape: tuple[ScheduleKind, int, int, int], word: str
) -> None:
    assert word in (schedule_violation(*shape, 8) or "")


def test_what_a_stack_cannot_say_is_refused_by_name() -> None:
    for kind in SPLIT_KINDS:
        assert "megatron" in (schedule_stack_violation(kind, stack("megatron")) or "")
        assert schedule_stack_violation(kind, stack("torchtitan")) is None
    only_one = replace(stack("megatron"), schedules=("1f1b",))
    assert "1f1b only" in (schedule_stack_violation("interleaved", only_one) or "")
