"""The same plan on another number or kind of devices: splits stay, data parallelism follows."""

from __future__ import annotations

from typing import Any

import pytest
from generators.catalogue_problems import problem

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs
from shardwright.api.what_if.inputs import question_of
from shardwright.api.what_if.what_if import SettingPricing, base_setting, check_question
from shardwright.costmodel.memory.feasibility import DEFAULT_RISK
from shardwright.planner.what_if.answer import PricedPlan, price_plan
from shardwright.planner.what_if.question import rows_of
from shardwright.planner.what_if.same_plan import CannotKeepError, same_plan
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

INPUTS = Inputs()


def uniform(model: str = "gpt2-medium", cluster: str = "2x8xH100", **strategy: Any) -> Plan:
    found = problem(model, cluster, 64, 1024)
    return uniform_plan(found, UniformStrategy(**strategy))[0]


def kept(plan: Plan, *sets: str, **more: Any) -> Plan:
    """The same plan in the setting of a question, without a search."""
    return priced(plan, *sets, **more).plan


def priced(plan: Plan, *sets: str, **more: Any) -> PricedPlan:
    (row,) = rows_of(question_of(sets, **more), base_setting(plan, INPUTS))
    pricing = SettingPricing(INPUTS, DEFAULT_RISK, lambda: None)
    moved = same_plan(plan, row.setting, pricing.stack(row.setting))
    return price_plan(moved, row.setting, pricing)


def degrees(plan: Plan) -> dict[str, Any]:
    """Degrees of the second layer, the kind of its sharding, and the batch's geometry."""
    stages, strategy = plan.program.stages, plan.layer_strategies()[1]
    ranks = stages[0].device_count
    return {
        "tp": strategy.tp, "pp": len(stages), "cp": strategy.cp, "ep": strategy.ep,
        "dp": strategy.data_parallel(ranks),
        "shard": strategy.shard.level_name(strategy.state_ranks(ranks)),
        "micro": (plan.program.schedule.micro_batch, plan.program.schedule.microbatches),
    }  # fmt: skip


@pytest.mark.parametrize("shard", ["zero0", "zero1", "zero2", "zero3", "hsdp:2", "1/1/2"])
@pytest.mark.parametrize("devices", [8, 16, 32, 64])
def test_splits_stay_and_dp_follows(shard: str, devices: int) -> None:
    plan = uniform(tp=2, pp=2, shard=shard)
    found = kept(plan, f"devices={devices}")
    assert not found.check()
    dp = devices // 4
    names = {("hsdp:2", 2): "zero3", ("1/1/2", 2): "zero1"}  # all the ranks that there are
    assert degrees(found) == {
        "tp": 2, "pp": 2, "cp": 1, "ep": 1, "dp": dp, "shard": names.get((shard, dp), shard),
        "micro": (1, 64 // dp),
    }  # fmt: skip
    used = sorted(r for s in found.program.stages for p in s.devices
                  for r in range(p.first_rank, p.first_rank + p.count))  # fmt: skip
    assert used == list(range(devices))


def test_back_and_forth_is_the_same_plan() -> None:
    plan = uniform(tp=2, pp=2, vpp=2, shard="zero1", recompute="full")
    assert kept(kept(plan, "nodes=4"), "nodes=2").hash == plan.hash


def test_experts_and_rings_keep_their_degrees() -> None:
    moe = uniform("qwen3-30b-a3b", "4x8xH100", tp=2, ep=8, sp="megatron", shard="zero1")
    assert degrees(kept(moe, "nodes=8")) | {"micro": 0} == degrees(moe) | {"dp": 32, "micro": 0}
    with pytest.raises(CannotKeepError, match="splits over at least 8 devices, and there are 4"):
        kept(moe, "devices=4")
    ring = uniform(cp=2, tp=2, shard="zero2")
    assert degrees(kept(ring, "nodes=1"))["dp"] == 2


def test_micro_batches_shrink_where_the_batch_leaves_no_more() -> None:
    plan = uniform(tp=2, micro_batch=8, shard="zero1")
    assert degrees(plan)["micro"] == (8, 1)
    assert degrees(kept(plan, "nodes=4"))["micro"] == (4, 1)
    assert degrees(kept(plan, "nodes=4", scale="batch"))["micro"] == (8, 1)
    assert kept(plan, "nodes=1", scale="batch").workload.global_batch == 32


def test_devices_stay_idle_where_dp_cannot_divide_the_batch() -> None:
    plan = uniform(tp=2, shard="zero1")
    found = priced(plan, "nodes=3")
    assert degrees(found.plan)["dp"] == 8
    assert found.idle_devices == 8
    grown = priced(plan, "nodes=3", scale="batch")
    assert degrees(grown.plan)["dp"] == 12
    assert grown.idle_devices == 0


def test_another_device_keeps_the_plan() -> None:
    plan = uniform(tp=2, pp=2, shard="zero1")
    slow, fast = (priced(plan, f"device={name}") for name in ("A100", "B200"))
    assert degrees(slow.plan) == degrees(fast.plan) == degrees(plan)
    assert fast.plan.cluster.groups[0].device == "B200-SXM-180GB"
    assert fast.step_time_s < priced(plan, "device=H100").step_time_s < slow.step_time_s
    grown = kept(plan, "device=GB200", "devices=72", scale="batch")
    assert (grown.cluster.groups[0].nodes, degrees(grown)["dp"]) == (18, 18)


def test_a_device_without_the_format_is_refused() -> None:
    plan = uniform(tp=2, shard="zero1")
    question = question_of(["device=V100"])
    with pytest.raises(InputError, match=r"--set device: got V100.* nearest: --set dtype=fp16"):
        check_question(plan, question, INPUTS, DEFAULT_RISK)
    check_question(plan, question_of(["device=V100", "dtype=fp16"]), INPUTS, DEFAULT_RISK)
