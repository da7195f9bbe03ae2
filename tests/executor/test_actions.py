"""Every rank's list of actions: its passes in order, its messages matched, and no rank stuck."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from checks.action_play import Play, rank_lists
from generators.heterogeneous_cases import FAST, SLOW, Held, MixedCase, ranks
from generators.plan_cases import Case, Sizes
from generators.random_actions import random_order

from shardwright.executor.pipeline import actions
from shardwright.executor.pipeline.actions import stage_actions
from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.stage_order import (
    ALL_KINDS,
    V_KINDS,
    Pass,
    ScheduleKind,
    stage_order,
)
from shardwright.spec.strategy import LayerStrategy

STRATEGIES = (
    LayerStrategy(),
    LayerStrategy(tp=2),
    LayerStrategy(tp=2, sequence_parallel="megatron"),
)
SHAPES: tuple[Held, ...] = (
    ranks(1),
    ranks(2),
    ranks(3),
    ranks(4),
    ((FAST, 2, 0.75), (SLOW, 2, 0.25)),
    ((FAST, 1, 0.5), (SLOW, 2, 0.5)),
)


def random_plan(seed: int) -> Plan:
    """A pipeline of stages that are seldom alike."""
    source = random.Random(seed)
    while True:
        stages = source.choice([2, 2, 3, 4, 5])
        held = tuple(source.choice(SHAPES) for _ in range(stages))
        kind = source.choice(["interleaved", *ALL_KINDS])
        chunks = source.choice([2, 3]) if kind == "interleaved" else 1 + (kind in V_KINDS)
        batches = stages * source.choice([1, 2]) if chunks > 1 else source.choice([1, 2, 5, 8])
        if kind in V_KINDS:
            batches = source.choice([1, 3, 2 * stages, 2 * stages + 1, 4 * stages])
            batches = max(batches, 2 * stages) if kind == "dualpipe" else batches
        base = Case(
            name=f"seed {seed}",
            sizes=Sizes(blocks=16),
            kind=kind,
            chunks=chunks,
            micro_batch=24,
            global_batch=24 * batches,
        )
        strategies = [
            source.choice([s for s in STRATEGIES if not any(n % s.tp for _, n, _ in stage)])
            for stage in held
        ]
        case = MixedCase(name=base.name, held=held, strategies=strategies, base=base, legal=False)
        plan = case.plan()
        if not plan.check():
            return plan


@pytest.mark.parametrize("seed", range(150))
def test_no_rank_waits_for_ever(seed: int) -> None:
    nobody_waits_for_ever(random_plan(seed))


@pytest.mark.parametrize("seed", range(60))
def test_no_rank_waits_for_ever_in_an_order_that_somebody_wrote(seed: int) -> None:
    plan = random_order(random_plan(seed), seed)
    if plan.check():
        assert plan.program.chunks_per_stage > 1
        assert "another order" in plan.check()[0].message
        return
    nobody_waits_for_ever(plan)


def nobody_waits_for_ever(plan: Plan) -> None:
    """Play the lists to the end: every pass in order, and no message left."""
    for waits_together in (False, True):
        play = Play(plan, waits_together)
        assert play.run() == []
        assert not any(play.queues.values())
        program = plan.program
        for rank, computed in zip(play.ranks, play.computed, strict=True):
            assert tuple(computed) == program.passes(rank.stage)


@pytest.mark.parametrize("kind", V_KINDS)
def test_a_v_would_wait_for_ever_for_what_its_turn_takes_later(
    monkeypatch: pytest.MonkeyPatch, kind: ScheduleKind
) -> None:
    base = Case(name="", kind=kind, chunks=2, sizes=Sizes(blocks=6), micro_batch=4, global_batch=32)
    plan = MixedCase(name="", held=(ranks(1),) * 4, base=base).plan()
    assert Play(plan, False).run() == []
    monkeypatch.setattr("checks.action_play.send_buffer_release", lambda *given: None)
    assert any("wait_sent" in where for where in Play(plan, False).run())


def test_the_play_sees_a_rank_that_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receiving only when a pass comes to it, and waiting for each message, is a deadlock."""

    def late(*given: object) -> tuple[actions.Action, ...]:
        found = []
        for action in stage_actions(*given):  # type: ignore[arg-type]
            if action.kind == "receive":
                found.append(action._replace(kind="post"))
            if action.kind not in ("post", "wait_sent"):
                found.append(action)
            if action.kind == "send":
                found += [action._replace(kind="wait_sent")] * 2
        return tuple(found)

    monkeypatch.setattr("checks.action_play.stage_actions", late)
    base = Case(name="", kind="1f1b", micro_batch=4, global_batch=16)
    plan = MixedCase(name="", held=(ranks(2), ranks(1)), base=base).plan()
    assert any("send" in where or "wait_sent" in where for where in Play(plan, False).run())


def test_each_pass_is_posted_one_ahead_and_the_last_backward_reduces() -> None:
    order = stage_order("1f1b", 0, 2, 1, 2)
    both = {(True, 0), (False, 0)}
    found = [
        (action.kind, "FB"[not action.item.forward] + str(action.item.micro_batch))
        for action in stage_actions(order, {(False, 0)}, {(True, 0)})
    ]
    assert found == [
        ("wait_sent", "F0"),
        ("forward", "F0"),
        ("send", "F0"),
        ("wait_sent", "F1"),
        ("post", "B0"),
        ("forward", "F1"),
        ("send", "F1"),
        ("wait_sent", "B0"),
        ("post", "B1"),
        ("receive", "B0"),
        ("backward", "B0"),
        ("end_backward", "B0"),
        ("wait_sent", "B1"),
        ("receive", "B1"),
        ("backward", "B1"),
        ("end_backward", "B1"),
        ("wait_sent", "B1"),
        ("wait_sent", "B1"),
    ]
    reducing = [(a.kind, a.item) for a in stage_actions(order, both, both) if a.reduces]
    assert reducing == [(kind, Pass(False, 0, 1)) for kind in ("backward", "end_backward")]


def test_a_gradient_leaves_before_its_pass_ends() -> None:
    order = stage_order("1f1b", 1, 2, 1, 2)
    found = [
        action.kind
        for action in stage_actions(order, {(True, 0)}, {(False, 0)})
        if action.item == Pass(False, 0, 1)
    ]
    assert found[-5:] == ["backward", "send", "end_backward", "wait_sent", "wait_sent"]


def test_two_ranks_feed_one_by_halves_and_get_halves_back() -> None:
    base = Case(name="", micro_batch=4, global_batch=8)
    plan = MixedCase(name="", held=(ranks(2), ranks(1)), base=base).plan()
    (_, left), (_, right), (start, _) = (rank.routes[0] for rank in rank_lists(plan))
    assert left is not None
    assert right is not None
    assert start is not None
    assert [piece.peer for piece in (*left.sends, *right.sends)] == [2, 2]
    assert (left.shape, start.shape) == ((16, 2, 32), (16, 4, 32))
    assert [(p.peer, tuple(p.samples)) for p in start.receives] == [(0, (0, 2)), (1, (2, 4))]
    assert start.sends == start.receives


def test_messages_are_the_same_on_both_sides() -> None:
    plan = random_plan(7)
    found = rank_lists(plan)
    sent = Counter(
        (rank, piece.peer, piece.rows)
        for rank, each in enumerate(found)
        for routes in each.routes
        for route in routes
        if route is not None
        for piece in route.sends
    )
    got = Counter(
        (piece.peer, rank, piece.rows)
        for rank, each in enumerate(found)
        for routes in each.routes
        for route in routes
        if route is not None
        for piece in route.receives
    )
    assert sent == got
