"""Orders that a plan spells out: read back as written, refused by name where they cannot run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from checks.schedule_checks import orders, random_shape
from generators.plan_cases import Case, Sizes

from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan, plan_of
from shardwright.spec.plan.send_buffers import same_stage_input, send_buffer_release
from shardwright.spec.rules.action_rules import action_order_violation
from shardwright.spec.rules.plan_rules import schedule_stack_violation
from shardwright.spec.schedules.action_text import format_actions, parse_actions
from shardwright.spec.schedules.stage_order import Pass

FIRST = "F0.0 F0.1 I0.0 W0.0 B0.1"
SECOND = "F0.0 B0.0 F0.1 B0.1"


def reason(*lines: str, kind: str = "1f1b", chunks: int = 1, batches: int = 2) -> str:
    """Why these orders are illegal; empty if they are legal."""
    return action_order_violation(kind, lines, 2, chunks, batches) or ""  # type: ignore[arg-type]


def test_every_kinds_orders_are_legal_as_written_and_read_back() -> None:
    source = random.Random(3)
    for _ in range(200):
        kind, stages, chunks, batches = shape = random_shape(source)
        if stages == 1:
            continue
        found = orders(shape)
        lines = [format_actions(order) for order in found]
        assert [parse_actions(line) for line in lines] == [
            tuple(item._replace(overlaps=False) for item in order) for order in found
        ]
        assert action_order_violation(kind, lines, stages, chunks, batches) is None


def test_a_mixed_order_is_legal() -> None:
    assert reason(FIRST, SECOND) == ""
    assert parse_actions(FIRST)[2:] == (
        Pass(False, 0, 0, "input"),
        Pass(False, 0, 0, "weight"),
        Pass(False, 0, 1),
    )


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((FIRST,), "1 orders for 2 stages"),
        ((FIRST, "F0.0 B0.0 F0.1 X0.1"), "X0.1"),
        ((FIRST, "F0.0 B0.0 F0.1"), "chunk 0 has 1 backwards of 2"),
        ((FIRST, "F0.0 B0.0 F0.1 I0.1"), "1 gradients of weights of 2"),
        ((FIRST, "F0.0 B0.0 B0.1 F0.1"), "B0.1 comes before F0.1"),
        ((FIRST, "F0.0 B0.0 F0.1 W0.1 I0.1"), "W0.1 comes before I0.1"),
        ((FIRST, "F0.1 F0.0 B0.0 B0.1"), "F0.1 comes twice, or before"),
        ((FIRST, "F0.0 F0.0 B0.0 B0.1"), "F0.0 comes twice"),
        ((FIRST, "F0.0 B0.0 I0.0 F0.1 B0.1"), "I0.0 comes twice"),
        ((FIRST, "F1.0 B0.0 F0.1 B0.1"), "F1.0 is not among 1 chunks"),
        ((FIRST, "F0.0 B0.0 F0.2 B0.1"), "F0.2 is not among"),
    ],
)
def test_what_is_wrong_with_an_order_is_named(lines: tuple[str, ...], says: str) -> None:
    assert says in reason(*lines)


def test_orders_that_wait_for_each_other_are_refused() -> None:
    whole = "F0.0 F0.1 B0.0 B0.1 F1.0 F1.1 B1.0 B1.1"
    found = reason(whole, whole, kind="interleaved", chunks=2)
    assert found == "stage 0 waits at B0.0 for what waits for it"


def test_messages_that_would_overtake_each_other_are_refused() -> None:
    sends = "F0.0 F1.0 F0.1 F1.1 B1.0 B1.1 B0.0 B0.1"
    takes = "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1"
    found = reason(takes, sends, kind="interleaved", chunks=2)
    assert "activations of stage" in found


def written(case: Case) -> Plan:
    """The plan of a case with its kind's order spelled out."""
    plan = case.plan()
    program = plan.program
    lines = tuple(format_actions(program.passes(s)) for s in range(len(program.stages)))
    schedule = replace(program.schedule, actions=lines)
    return replace(plan, programs=(replace(program, schedule=schedule),))


def test_a_plan_with_an_order_survives_its_document() -> None:
    plan = written(Case(name="", stages=2, kind="zero_bubble", micro_batch=2))
    assert plan.check() == []
    again = plan_of(plan.to_document(), "plan")
    assert again == plan
    assert again.program.splits_backward
    assert again.program.passes(1) == plan.program.passes(1)


def test_a_broken_order_is_a_violation_of_the_plan() -> None:
    plan = written(Case(name="", stages=2, micro_batch=2))
    program = plan.program
    schedule = replace(program.schedule, actions=("F0.0", "F0.0"))
    (found,) = replace(plan, programs=(replace(program, schedule=schedule),)).check()
    assert found.path == "programs.0.schedule.actions"
    with pytest.raises(InputError, match="words such as"):
        parse_actions("forward")


def test_a_stack_of_fixed_orders_is_refused() -> None:
    assert schedule_stack_violation("1f1b", stack("megatron"), written=False) is None
    assert "own" in (schedule_stack_violation("1f1b", stack("megatron"), written=True) or "")
    assert schedule_stack_violation("1f1b", stack("shardwright"), written=True) is None


def test_a_v_keeps_what_it_sends_far_ahead_and_hands_itself_the_turn() -> None:
    eight = Sizes(blocks=6)
    plan = Case(name="", stages=4, chunks=2, kind="zbv", micro_batch=1, sizes=eight).plan()
    first, turn = (send_buffer_release(plan.program, stage) for stage in (0, 3))
    assert first is not None
    assert turn is not None
    assert max(place - number for number, place in enumerate(first)) > 2
    order = plan.program.passes(3)
    down = order.index(Pass(True, 0, 1))
    assert turn[down] == order.index(Pass(True, 1, 1))
    assert [same_stage_input(plan.program, 3, chunk, True) for chunk in (0, 1)] == [False, True]
    assert [same_stage_input(plan.program, 3, chunk, False) for chunk in (0, 1)] == [True, False]
    assert not any(same_stage_input(plan.program, 0, c, f) for c in (0, 1) for f in (True, False))
