"""What-if: settings that change, the same plan in them, re-planned, and the term that moved."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from generators.catalogue_problems import problem

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs
from shardwright.api.what_if.inputs import question_of
from shardwright.api.what_if.what_if import WhatIf, base_setting, what_if
from shardwright.costmodel.memory.feasibility import DEFAULT_RISK
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.planner.what_if.answer import Answer
from shardwright.planner.what_if.plan_difference import plan_difference
from shardwright.planner.what_if.question import rows_of
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

INPUTS = Inputs()


def uniform(cluster: str = "2x8xH100", batch: int = 64, **strategy: Any) -> Plan:
    """A plan of gpt2-medium with one strategy for all layers."""
    found = problem("gpt2-medium", cluster, batch, 1024)
    return uniform_plan(found, UniformStrategy(**strategy))[0]


def asked(plan: Plan, *sets: str, **more: Any) -> WhatIf:
    return what_if(plan, question_of(sets, **more), INPUTS, DEFAULT_RISK)


def answer(plan: Plan, *sets: str, **more: Any) -> Answer:
    return asked(plan, *sets, **more).answers[0]


def changes(plan: Plan, *sets: str, **more: Any) -> dict[str, tuple[Any, Any]]:
    """Every change of a question, priced by nobody."""
    rows = rows_of(question_of(sets, **more), base_setting(plan, INPUTS))
    return {change.path: (change.was, change.now) for row in rows for change in row.changes}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return uniform(tp=2, shard="zero1")


def test_every_key_says_what_it_was_and_is(plan: Plan) -> None:
    hbm = plan.cluster.groups[0].memory.hbm_bytes
    found = changes(
        plan, "inter_node.bandwidth=2x", "intra_node.latency=-50%", "device.hbm=40GiB",
        "device.bandwidth=+10%", "device.flops=1PFLOP/s", "device.launch=0.5x", "nodes=3",
        "global_batch=128", "seq_len=0.5x", "dtype=fp8", "optimizer=sgd", "stack=megatron",
        "stack.attention=unfused", "stack.overlap=none", "stack.slowdown=1.5", "stack.launch=2x",
    )  # fmt: skip
    assert found["inter_node.bandwidth"] == (50e9, 100e9)
    was, now = found["intra_node.latency"]
    assert now == was / 2 > 0
    assert found["device.hbm"] == (hbm, 40 * 2**30)
    assert found["nodes"] == (2, 3)
    assert found["global_batch"] == (64, 128)
    assert found["seq_len"] == (1024, 512)
    assert found["dtype"] == ("bf16", "fp8")
    assert found["optimizer"] == ("adamw", "sgd")
    assert found["stack"] == ("shardwright", "megatron")
    assert found["stack.attention"] == ("flash", "unfused")
    assert found["stack.overlap"] == ("dp", "none")
    assert found["stack.slowdown"][1] == 1.5
    assert len(found) == 16


def test_links_that_come_with_nodes_can_be_changed() -> None:
    small = uniform("1x8xH100", tp=2, shard="zero1")
    assert changes(small, "inter_node.bandwidth=0.5x", "nodes=2")["inter_node.bandwidth"] == (
        50e9, 25e9
    )  # fmt: skip
    with pytest.raises(InputError, match=r"nearest: intra_node\.bandwidth"):
        changes(small, "inter_node.bandwidth=0.5x")


@pytest.mark.parametrize(
    ("sets", "more", "says"),
    [
        ((), {}, "a change: --set, --sweep or --add"),
        (("nodes=2", "nodes=3"), {}, "each key once"),
        (("nodes=2", "devices=8"), {}, "one of the two"),
        (("global_batch=2x",), {"sweep": "global_batch=1,2"}, "each key once"),
        (("seq_len=4096",), {}, "exceeds the 1024 learned positions"),
        (("stack.slowdown=3",), {}, "a factor from 1 to 2"),
        (("devices=20",), {}, "nearest: 16 or 24"),
        (("optimizer=adamX",), {}, "nearest: adam"),
        (("dtype=9",), {}, "--set dtype"),
        (("nodes=3",), {"scale": "batch"}, None),
        (("devices=24", "global_batch=5"), {"scale": "batch"}, "make no whole batch"),
    ],
)
def test_questions_that_cannot_be_asked(
    plan: Plan, sets: tuple[str, ...], more: dict[str, Any], says: str | None
) -> None:
    if says is None:
        assert changes(plan, *sets, **more)["global_batch"] == (64, 96)
        return
    with pytest.raises(InputError, match=says):
        changes(plan, *sets, **more)


def test_terms_explain_the_difference(plan: Plan) -> None:
    """What the terms moved adds up to what the step moved, and the largest is named."""
    found = asked(plan, "intra_node.bandwidth=0.1x", "device.flops=0.5x")
    same, base = found.answers[0].same, found.baseline
    assert same is not None
    before, after = base.prediction.breakdown_s, same.prediction.breakdown_s
    by = {name: after[name] - before[name] for name in before}
    assert math.isclose(sum(by.values()), same.step_time_s - base.step_time_s, rel_tol=1e-9)
    most = max(by, key=lambda name: abs(by[name]))
    assert found.answers[0].moved == (most, by[most])
    assert same.plan.hash == plan.hash  # the same decisions: rates are none of a plan's


def test_nothing_moves_where_nothing_changes(plan: Plan) -> None:
    found = asked(plan, "device.flops=1x")
    same = found.answers[0].same
    assert same is not None
    assert same.prediction == found.baseline.prediction
    assert found.answers[0].moved is None


def test_a_batch_of_another_size_makes_other_micro_batches(plan: Plan) -> None:
    same = answer(plan, "global_batch=128").same
    assert same is not None
    was, now = plan.program.schedule, same.plan.program.schedule
    assert (now.micro_batch, now.microbatches) == (was.micro_batch, 2 * was.microbatches)
    refused = answer(plan, "global_batch=60")
    assert refused.same is None
    assert "do not divide a batch of 60 (nearest: 56 or 64)" in refused.same_why
    assert refused.best is not None
    assert refused.gain is None


def test_fewer_devices_than_the_plan_needs() -> None:
    found = answer(uniform(tp=4, pp=4, shard="zero0"), "devices=8")
    assert found.same is None
    assert found.same_why == "it splits over at least 16 devices, and there are 8"
    assert found.best is not None
    assert found.best.plan.cluster.device_count == 8
    assert "devices 16 -> 8" in [str(item) for item in found.difference]


def test_added_devices_of_the_same_kind_grow_dp(plan: Plan) -> None:
    found = answer(plan, add="1x8xH100", scale="batch")
    assert found.same is not None
    assert found.same.idle_devices == 0
    assert found.same.plan.workload.global_batch == 96
    assert [str(item) for item in found.same_difference] == ["devices 16 -> 24", "dp 8 -> 12"]
    assert found.best is not None
    assert found.gain is not None
    assert not found.best.plan.check()


@pytest.mark.evidence
def test_devices_of_another_kind_keep_the_plan_legal(plan: Plan) -> None:
    """The plan's group gets another name; whatever the planner does with the others is told."""
    found = answer(plan, add="1x8xA100")
    assert found.same is not None
    assert not found.same.plan.check()
    names = {part.device_group for stage in found.same.plan.program.stages
             for part in stage.devices}  # fmt: skip
    assert names == {"h100"}
    assert found.same.idle_devices == 8
    assert found.best is not None or found.best_why


def test_what_does_not_fit_is_priced_and_named(plan: Plan) -> None:
    found = answer(plan, "device.hbm=2GiB")
    same, best = found.same, found.best
    assert same is not None
    assert not same.prediction.feasible
    assert same.excess[0].excess_bytes > 0
    assert [item.excess_bytes for item in same.excess] == sorted(
        (item.excess_bytes for item in same.excess), reverse=True
    )
    assert best is None or best.prediction.feasible
    nothing = answer(plan, "device.hbm=100MiB")
    assert nothing.best is None
    assert "smallest change that fits" in nothing.best_why


def test_the_best_plan_is_kept() -> None:
    found = problem("gpt2-medium", "2x8xH100", 64, 1024)
    best = solve(found, SolveOptions(top=0)).plan
    kept = answer(best, "inter_node.latency=1x")
    assert kept.kept
    assert kept.gain == 0.0
    assert kept.difference == ()
    assert kept.best is not None
    assert kept.best.plan.hash == best.hash


def test_re_planning_never_loses() -> None:
    for strategy in ({"tp": 8}, {"pp": 4, "shard": "zero1"}, {"tp": 2, "cp": 2, "shard": "zero3"}):
        found = answer(uniform(**strategy), "inter_node.bandwidth=0.2x", "device.flops=3x")
        assert found.same is not None
        assert found.best is not None
        assert found.gain is not None
        assert found.gain >= 0
        assert found.best.step_time_s <= found.same.step_time_s
        assert found.search is not None
        if not found.kept:
            assert found.search.lower_bound_s <= found.best.step_time_s * (1 + 1e-9)


def test_a_stack_that_cannot_say_the_plan() -> None:
    found = answer(uniform(tp=2, shard="zero3"), "stack=megatron")
    assert found.same is None
    assert "megatron cannot say it" in found.same_why
    assert found.best is not None


def test_a_format_that_a_device_lacks_is_refused_before_any_search(plan: Plan) -> None:
    with pytest.raises(InputError, match=r"--set dtype.*H100-SXM-80GB computes in"):
        asked(plan, "dtype=nvfp4")
    with pytest.raises(InputError, match=r"--set stack: got megatrn"):
        asked(plan, "stack=megatrn")
    with pytest.raises(InputError, match=r"--sweep stack: got megatrn"):
        asked(plan, sweep="stack=megatron,megatrn")


@pytest.mark.evidence
def test_equal_questions_have_equal_answers(plan: Plan) -> None:
    first, second = (asked(plan, sweep="global_batch=32,64,96") for _ in range(2))
    for a, b in zip(first.answers, second.answers, strict=True):
        assert a.same == b.same
        assert a.best == b.best
        assert (a.moved, a.gain, a.difference) == (b.moved, b.gain, b.difference)


def test_differences_are_of_decisions() -> None:
    was = uniform(tp=2, shard="zero1")
    assert plan_difference(was, was) == ()
    now = uniform(tp=4, shard="zero1", recompute="full")
    words = [str(item) for item in plan_difference(was, now)]
    assert words == [
        "tp 2 -> 4", "dp 8 -> 4", "recompute none -> none/full", "micro-batch 1 x 8 -> 1 x 16",
    ]  # fmt: skip
    early, late = (_with_full_recompute(was, *run) for run in ((1, 3), (4, 6)))
    assert [str(item) for item in plan_difference(early, late)] == [
        "layers with each other's strategies"
    ]


def _with_full_recompute(plan: Plan, first: int, last: int) -> Plan:
    """The plan with some blocks recomputed; they keep clear of both ends of the run of blocks."""
    stage = plan.program.stages[0]
    parts = []
    for part in stage.virtual_stages[0]:
        tower, low, high = part.layers
        if not low <= first <= last <= high:
            parts.append(part)
            continue
        full = replace(part.strategy, recompute="full")
        runs = (
            (low, first - 1, part.strategy),
            (first, last, full),
            (last + 1, high, part.strategy),
        )
        parts += [
            replace(part, layers=(tower, start, stop), strategy=strategy)
            for start, stop, strategy in runs
            if start <= stop
        ]
    stages = (replace(stage, virtual_stages=(tuple(parts),)),)
    return replace(plan, programs=(replace(plan.program, stages=stages),))
