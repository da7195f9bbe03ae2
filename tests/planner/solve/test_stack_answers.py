"""Answers for stacks of one strategy where layers divide badly, or groups differ."""

from __future__ import annotations

import pytest

import shardwright as sw
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.rules.stack_limits import stack_plan_violations

TYPED = {"hidden": 1024, "heads": 16, "activation": "swiglu", "norm": "rmsnorm"}


@pytest.mark.parametrize(
    ("layers", "vocab", "pp", "batch"), [(22, 71000, 4, 16), (45, 21000, 4, 8), (37, 50000, 8, 16)]
)
@pytest.mark.parametrize("name", ["megatron", "torchtitan"])
def test_odd_numbers_of_layers_are_cut_by_the_stacks_rule(
    name: str, layers: int, vocab: int, pp: int, batch: int
) -> None:
    answer = sw.plan(
        {**TYPED, "layers": layers, "vocab": vocab},
        "8xA100-80GB",
        global_batch=batch,
        seq_len=1024,
        stack=name,
        prefer="best",
        pins={"pp": pp, "schedule": "1f1b"},
        top=5,
    )
    for plan in (answer.plan, *(a.plan for a in answer.report.alternatives)):
        assert stack_plan_violations(plan, stack(name)) == []


def test_device_groups_are_searched_one_by_one_for_a_stack() -> None:
    answer = sw.plan(
        {**TYPED, "layers": 8, "vocab": 32000},
        "4xA100-80GB+4xH100-80GB",
        global_batch=16,
        seq_len=1024,
        stack="megatron",
    )
    for plan in (answer.plan, *(a.plan for a in answer.report.alternatives)):
        assert stack_plan_violations(plan, stack("megatron")) == []
        assert all(len(stage.devices) == 1 for stage in plan.program.stages)


def test_pins_that_a_stack_does_not_have_are_said_so() -> None:
    with pytest.raises(sw.errors.InfeasibleError, match="the stack torchtitan has for all layers"):
        sw.plan(
            "gpt2",
            "4xA100-80GB",
            global_batch=16,
            seq_len=1024,
            stack="torchtitan",
            pins={"tp": 2, "sp": "ulysses"},
        )
