"""What counts as an answer that an expert would give, and what a stack cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from published.expert_judge import Priced, judge
from published.layer_choices import distinct_strategies, kinds_of_parallelism
from published.stack_rules import stack_faults

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.spec.plan.plan import LayerPlan, Plan


def uniform(model: str = "llama-2-7b", cluster: str = "16xH100", **flags: Any) -> Plan:
    """One strategy for all layers."""
    problem = resolve(Inputs(model=model, cluster=cluster, global_batch=64, seq_len=1024))
    return uniform_plan(problem, UniformStrategy.from_flags(flags))[0]


def mixed(plan: Plan, **changes: Any) -> Plan:
    """A plan of one chunk whose first two blocks have other choices."""
    (stage,) = plan.program.stages
    ((first, *parts),) = stage.virtual_stages
    blocks = next(part for part in (first, *parts) if part.layers[2] > part.layers[1])
    tower, start, last = blocks.layers
    cut = [
        LayerPlan(layers=(tower, start, start + 1), strategy=replace(blocks.strategy, **changes)),
        replace(blocks, layers=(tower, start + 2, last)),
    ]
    every = [new for part in (first, *parts) for new in (cut if part is blocks else [part])]
    stages = (replace(stage, virtual_stages=(tuple(every),)),)
    return replace(plan, programs=(replace(plan.program, stages=stages),))


PLAIN, PIPELINED = uniform(shard="zero1"), uniform(tp=2, pp=2, shard="zero1")
UNEVEN = mixed(PLAIN, recompute="selective")


@pytest.mark.parametrize(
    ("answer", "expert", "passes", "why"),
    [
        ((PLAIN, 1.3), (PLAIN, 1.3), True, "the expert's plan"),
        ((PLAIN, 1.005), (PIPELINED, 1.0), True, "+0.5%, 1 strategy of 1 kind for 1 strategy of 3"),
        ((PIPELINED, 1.005), (PLAIN, 1.0), False, "yet 1 strategy of 3 kinds"),
        ((UNEVEN, 0.995), (PIPELINED, 1.0), False, "-0.5%, yet 2 strategies of 1 kind for"),
        ((PIPELINED, 0.98), (PLAIN, 1.0), True, "faster by 2.0%"),
        ((PLAIN, 1.02), (PIPELINED, 1.0), False, "slower by 2.0%"),
    ],
)
def test_an_answer_stands_if_it_is_as_good(
    answer: tuple[Plan, float], expert: tuple[Plan, float], passes: bool, why: str
) -> None:
    ours, theirs = (Priced(plan=plan, step_time_s=s) for plan, s in (answer, expert))
    verdict = judge(ours, theirs)
    assert (verdict.passes, why in verdict.why) == (passes, True), verdict.why
    assert not judge(ours, theirs, ["zero1"]).passes


def test_cuts_are_no_part_of_being_the_same_plan() -> None:
    cut = uniform(tp=2, pp=2, shard="zero1", first_stage_layers=15)
    other = uniform(tp=2, pp=2, shard="zero1", micro_batch=2)
    same, cut_otherwise, larger = (
        Priced(plan=plan, step_time_s=1.0).decisions for plan in (PIPELINED, cut, other)
    )
    assert same == cut_otherwise != larger


def test_choices_that_say_nothing_of_a_layer_are_not_counted() -> None:
    assert len(distinct_strategies(uniform(recompute="full", shard="zero3"))) == 1
    experts = uniform("moonlight", ep=8, shard="zero1", recompute="full")
    assert len(distinct_strategies(experts)) == 1
    assert len(distinct_strategies(UNEVEN)) == 2


def test_kinds_of_parallelism_are_counted_once() -> None:
    assert kinds_of_parallelism(PLAIN) == {"data"}
    assert kinds_of_parallelism(PIPELINED) == {"tensor", "pipeline", "data"}
    assert kinds_of_parallelism(uniform(tp=4, sp="ulysses", cp=4)) == {"sequence", "context"}
    assert kinds_of_parallelism(uniform("moonlight", ep=8)) == {"data", "expert"}


@pytest.mark.parametrize(
    ("stack", "plan", "fault"),
    [
        ("megatron", PIPELINED, None),
        ("megatron:grad_overlap=on", uniform(shard="1/1/4"), None),
        ("megatron", uniform(shard="zero3"), None),
        ("megatron", uniform(pp=2, shard="zero2"), "in a pipeline"),
        ("megatron", mixed(PLAIN, recompute="full"), None),
        ("megatron", UNEVEN, "recomputation none, selective"),
        ("megatron", mixed(PLAIN, tp=2), "2 values of tp"),
        ("torchtitan", uniform(shard="zero2", pp=2), None),
        ("torchtitan", uniform(shard="hsdp:8"), None),
        ("torchtitan", uniform(), None),
        ("torchtitan", PLAIN, "zero1"),
        ("torchtitan", uniform(tp=2), None),
        ("torchtitan", uniform(cp=2), "zero0 beside a ring"),
        ("torchtitan", uniform(tp=4, sp="ulysses", shard="zero3"), "Ulysses"),
        ("torchtitan", uniform(shard="hpz:8"), "neither FSDP nor HSDP"),
        ("deepspeed", uniform(pp=2, shard="zero1"), None),
        ("deepspeed", uniform(pp=2, shard="zero2"), "ZeRO-2 or ZeRO-3 in a pipeline"),
        ("deepspeed", uniform(pp=2, vpp=2), "schedule interleaved"),
        ("deepspeed", uniform(cp=2), "a ring"),
        ("transformers", uniform(shard="zero3", recompute="full"), None),
        ("transformers", uniform(pp=2), "a pipeline"),
        ("transformers", uniform(tp=2), "zero0 beside tensor"),
        ("transformers", uniform(tp=2, cp=2, sp="ulysses"), "Ulysses and a ring"),
        ("shardwright", mixed(PLAIN, tp=2), None),
    ],
)
def test_a_stack_refuses_what_its_software_cannot_run(
    stack: str, plan: Plan, fault: str | None
) -> None:
    faults = stack_faults(plan, stack)
    assert any(fault in text for text in faults) if fault else not faults, faults
