"""Answers: the simplest of equally good plans, true runners-up, advice."""

from __future__ import annotations

import pytest

import shardwright as sw
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.candidates.complexity import Complexity
from shardwright.planner.solve.alternatives import faster_text
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.plan.uniform_strategy import strategy_count

SMALL = {"layers": 12, "hidden": 2048, "heads": 16, "vocab": 32000, "activation": "swiglu"}
JOB = {"cluster": "8xA100-80GB", "global_batch": 16, "seq_len": 4096}
SIMPLE = Complexity(1, 1, 0, 0, 1, False, False)


def strategies(plan: sw.Plan) -> int:
    return strategy_count(plan.model.layers(), plan.program.layer_strategies())


def test_the_answer_is_the_simplest_within_a_per_cent() -> None:
    best = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=16, seq_len=8192, prefer="best")
    simple = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=16, seq_len=8192)
    ratio = simple.prediction.step_time_s / best.prediction.step_time_s
    assert 1 <= ratio <= 1.01
    assert strategies(simple.plan) == 1 < strategies(best.plan)
    program = simple.plan.program
    assert (len(program.stages), program.first_strategy.tp) == (1, 1)
    fastest = simple.report.alternatives[0]
    assert fastest.fastest
    assert fastest.plan == best.plan
    assert fastest.lost_by.startswith("-")
    assert "strategy more" in fastest.lost_by


def test_nothing_is_lost_where_the_simplest_is_the_best() -> None:
    best = sw.plan(SMALL, **JOB, prefer="best")
    same = sw.plan(SMALL, **JOB, prefer="simple:0%")
    assert same.prediction.step_time_s == pytest.approx(best.prediction.step_time_s, rel=1e-9)
    assert not any(a.fastest for a in same.report.alternatives if a.plan == same.plan)


def test_runners_up_are_of_other_families_and_in_order() -> None:
    answer = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=64, seq_len=4096, top=6)
    rivals = [a for a in answer.report.alternatives if not a.fastest and not a.simplest]
    steps = [a.prediction.step_time_s for a in rivals]
    assert len(steps) >= 4
    assert steps == sorted(steps)
    kinds = {
        (
            len(a.plan.program.stages),
            a.plan.program.first_strategy.tp,
            a.plan.program.first_strategy.shard,
            a.plan.program.chunks_per_stage,
            str(a.plan.program.stages[0].virtual_stages),
        )
        for a in rivals
    }
    assert len(kinds) == len(rivals)


def test_a_runner_up_is_as_good_as_its_pins_find() -> None:
    asked = {"cluster": "8xH100-80GB", "global_batch": 32, "seq_len": 4096, "stack": "torchtitan"}
    answer = sw.plan("qwen3-30b-a3b", **asked, top=4, memory_gib=70)
    for rival in answer.report.alternatives[:2]:
        strategy = rival.plan.program.first_strategy
        pins = [f"pp={len(rival.plan.program.stages)}", f"tp={strategy.tp}"]
        pinned = sw.plan("qwen3-30b-a3b", **asked, memory_gib=70, pins=pins, prefer="best")
        assert pinned.prediction.step_time_s <= rival.prediction.step_time_s * (1 + 1e-9)


def test_an_odd_batch_gets_advice() -> None:
    answer = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=17, seq_len=8192)
    advice = [a for a in answer.report.advice if a.about == "global_batch"]
    assert [a.value for a in advice] == [16]
    assert advice[0].gain is not None
    assert advice[0].gain > 0.03
    near = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=16, seq_len=8192)
    rate = near.prediction.tokens_per_s_per_device / answer.prediction.tokens_per_s_per_device
    assert rate - 1 == pytest.approx(advice[0].gain, abs=0.03)
    assert not any(a.about == "global_batch" for a in near.report.advice)


def test_a_full_memory_is_fragile() -> None:
    full = sw.plan(SMALL, **JOB)
    peak = max(row.reserved_bytes for row in full.prediction.memory)
    tight = sw.plan(SMALL, **JOB, memory_gib=peak * 1.06 / 2**30, prefer="best")
    share = max(row.reserved_bytes / row.capacity_bytes for row in tight.prediction.memory)
    fragile = [a for a in tight.report.advice if a.about == "fragile"]
    assert bool(fragile) == (share > 0.93)
    assert share > 0.93
    assert "full" in fragile[0].why
    assert fragile[0].plan is not None


def test_a_sharding_pin_is_not_met_emptily() -> None:
    problem = resolve(Inputs(model="gpt2", cluster="1xA100-80GB", global_batch=8, seq_len=1024))
    from shardwright.planner.space.pins import Pin

    with pytest.raises(InfeasibleError, match="pins"):
        solve(problem, SolveOptions(pins=(Pin(key="shard", value="zero3"),)))
    many = sw.plan("gpt2", "8xA100-80GB", global_batch=8, seq_len=1024, pins=["shard=zero3"])
    for stage in many.plan.program.stages:
        for part in (p for parts in stage.virtual_stages for p in parts):
            assert (
                part.strategy.shard.parameters == part.strategy.state_ranks(stage.device_count) > 1
            )


def test_the_nearest_common_stack_stands_beside_our_own() -> None:
    ours = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=16, seq_len=4096)
    beside = ours.report.common_stack
    assert beside is not None
    assert beside.stack == "torchtitan"
    given = sw.plan("llama-3-8b", "8xA100-80GB", global_batch=16, seq_len=4096, stack="torchtitan")
    assert given.report.common_stack is None
    assert beside.plan == given.plan
    assert beside.prediction == given.prediction
    adapters = sw.plan(
        "llama-3-8b", "1xA100-80GB", global_batch=8, seq_len=2048, trainable="lora:rank=16"
    )
    assert adapters.report.common_stack is not None
    assert adapters.report.common_stack.stack == "transformers"


def test_what_a_faster_plan_takes_more_is_said() -> None:
    other = replace_complexity(strategies=3, kinds=2, chunks=2, uneven=1)
    assert faster_text(-0.004, SIMPLE, other) == (
        "-0.4% with 2 strategies more, 1 kind of parallelism more, 1 chunk a stage more, "
        "stages less even"
    )


def replace_complexity(**changed: int) -> Complexity:
    return SIMPLE._replace(**changed)
