"""What a plan asks for and the executor does not do is refused, however its ranks started."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from generators.heterogeneous_cases import FAST, SLOW, MixedCase, ranks
from generators.plan_cases import random_case
from ranks.rank_jobs import make_engine

from shardwright.executor.groups.rank_layout import plan_device, plan_devices
from shardwright.executor.train.job import require_executable
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.training import Lora
from shardwright.spec.workload.workload import DtypeRecord

FakeRanks = Callable[[int, int], AbstractContextManager[None]]
NOT_RUN = {
    "gradient": DtypeRecord(gradient="bf16"),
    "master": DtypeRecord(master="bf16"),
    "moments": DtypeRecord(moments="fp16"),
    "communication": DtypeRecord(communication="fp16"),
}


def plan_of(dtype: DtypeRecord) -> Plan:
    plan = random_case(0, ranks=1, stages=1).plan()
    return replace(plan, workloads={"main": replace(plan.workload, dtype=dtype)})


@pytest.mark.parametrize("name", list(NOT_RUN))
def test_formats_that_are_priced_but_not_run_are_refused_by_name(
    name: str, fake_ranks: FakeRanks
) -> None:
    plan = plan_of(NOT_RUN[name])
    assert plan.check() == []  # it can be priced
    with pytest.raises(InputError, match=name):
        require_executable(plan)
    with fake_ranks(0, 1), pytest.raises(InputError, match=name):
        make_engine(plan, 0, torch.device("cpu"))


@pytest.mark.parametrize("shorthand", ["fp32", "bf16", "fp16"])
def test_formats_that_are_run_keep_what_they_say(shorthand: str, fake_ranks: FakeRanks) -> None:
    plan = plan_of(DtypeRecord.from_shorthand(shorthand))
    require_executable(plan)
    with fake_ranks(0, 1):
        engine = make_engine(plan, 0, torch.device("cpu"))
        engine.step()
        held = {p.data.dtype for p in engine.updater.parameters}
        held |= {
            value.dtype
            for state in engine.updater.optimizer.state.values()
            for name, value in state.items()
            if name.startswith("exp_avg")
        }
    assert held == {torch.float32}


def test_sharding_that_is_not_run_is_refused() -> None:
    plan = plan_of(DtypeRecord.from_shorthand("fp32"))
    adapted = replace(plan.workload, trainable=Lora(rank=2, alpha=2, targets=("query",)))
    plan, stage = replace(plan, workloads={"main": adapted}), plan.program.stages[0]
    strategy = LayerStrategy(shard=Sharding(gradients=2, optimizer=4))
    parts = tuple(
        tuple(replace(part, strategy=strategy) for part in parts) for parts in stage.virtual_stages
    )
    program = replace(plan.program, stages=(replace(stage, virtual_stages=parts),))
    with pytest.raises(InputError, match="one degree"):
        require_executable(replace(plan, programs=(program,)))


def test_cores_and_accelerators_in_one_run_are_refused() -> None:
    plan = MixedCase(name="", held=(ranks(1), ranks(1, SLOW))).plan()
    require_executable(plan)
    fast, slow = plan.cluster.groups
    cluster = replace(plan.cluster, groups=(fast, replace(slow, device="H100-SXM-80GB")))
    with pytest.raises(InputError, match="cores and accelerators"):
        require_executable(replace(plan, cluster=cluster))


def test_ranks_of_mixed_accelerators_each_want_their_own_device() -> None:
    plan = MixedCase(name="", held=(ranks(1), ranks(2, SLOW))).plan()
    names = {FAST: "H100-SXM-80GB", SLOW: "A100-SXM-80GB"}
    groups = tuple(replace(group, device=names[group.name]) for group in plan.cluster.groups)
    plan = replace(plan, cluster=replace(plan.cluster, groups=groups))
    require_executable(plan)
    assert plan_devices(plan) == ("H100-SXM-80GB", "A100-SXM-80GB", "A100-SXM-80GB")
    with pytest.raises(InputError, match="torchrun starts the ranks of mixed machines"):
        plan_device(plan)
