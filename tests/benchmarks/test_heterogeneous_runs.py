"""Emulated slow ranks: slowed work, factors, and predictions."""

from __future__ import annotations

import pytest
from generators.heterogeneous_cases import FAST, SLOW
from items.executor import heterogeneous_runs
from support.slow_ranks import EmulatedMachine, Slowness, slowed, slowed_profile

from shardwright.executor.groups.rank_layout import plan_world_size
from shardwright.executor.pipeline.runtime import PipelineRuntime
from shardwright.spec.cluster.machine_profile import CollectiveRow, KernelRow, MachineProfile

PROFILE = MachineProfile(
    fingerprint="none",
    machine={},
    ranks=2,
    measured_at="2026-01-01T00:00:00Z",
    duration_s=1.0,
    kernels=(
        KernelRow(
            op="matmul", shape=(64, 64, 64), dtype="fp32", flops=2**19, traffic_bytes=49152,
            time_s=1e-3,
        ),
    ),
    collectives=(CollectiveRow(kind="send", ranks=2, payload_bytes=2**20, time_s=2e-3),),
    host_s={"kernel": 1e-5, "collective": 2e-5, "message": 3e-5, "step": 4e-5},
)  # fmt: skip


class Clock:
    """Processor time that only calls spend, and what was slept."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.slept_s: list[float] = []

    def work(self, seconds: float) -> str:
        self.cpu_s += seconds
        return "done"


def test_a_slow_rank_sleeps_in_proportion_to_its_own_work() -> None:
    clock = Clock()
    slow = Slowness(4.0, lambda: clock.cpu_s, clock.slept_s.append).of(clock.work)
    assert [slow(0.5), slow(seconds=0.25), slow(0.0)] == ["done"] * 3
    assert clock.slept_s == [1.5, 0.75, 0.0]
    with pytest.raises(ValueError, match="at least 1"):
        Slowness(0.5)


def test_passes_are_slowed_only_inside() -> None:
    plain = PipelineRuntime.compute
    with slowed(Slowness(2.0)):
        assert PipelineRuntime.compute is not plain
    assert PipelineRuntime.compute is plain


def test_work_is_priced_slower_and_waiting_is_not() -> None:
    found = slowed_profile(PROFILE, 4.0)
    assert found.kernels[0].time_s == 4e-3
    assert found.collectives == PROFILE.collectives
    assert found.host_s == {"kernel": 4e-5, "collective": 2e-5, "message": 3e-5, "step": 1.6e-4}


def test_each_device_group_has_its_own_profile() -> None:
    plan = heterogeneous_runs.CASES[0].plan()
    machine = EmulatedMachine(plan.cluster, PROFILE, slowdowns=((FAST, 2.0), (SLOW, 4.0)))
    seconds = {}
    for name in (FAST, SLOW):
        alone = EmulatedMachine(plan.cluster.alone(name), PROFILE, slowdowns=machine.slowdowns)
        assert alone.profile is not None
        seconds[name] = alone.profile.kernels[0].time_s
    assert seconds == {FAST: 2e-3, SLOW: 4e-3}


def test_every_case_is_a_legal_plan_on_two_kinds_of_device() -> None:
    names = [case.name for case in heterogeneous_runs.CASES]
    assert len(set(names)) == len(names) >= 8
    for case in heterogeneous_runs.CASES:
        plan = case.plan()
        rates = list(heterogeneous_runs.slowdowns(plan))
        assert len(rates) == plan_world_size(plan) <= 4
        assert set(rates) == {2.0, 4.0}
        assert sum(1 / rate for rate in rates) <= heterogeneous_runs.CORES
    for _, uneven, even in heterogeneous_runs.PAIRS:
        assert {uneven, even} <= set(names)


def test_plans_are_told_apart_in_words() -> None:
    words = [heterogeneous_runs.in_words(case.plan()) for case in heterogeneous_runs.CASES]
    assert words[2] == "1 fast: 4 + 1 slow: 2 samples, 1f1b, 4 micro-batches"
    assert words[4] == "1 fast: 6 | 2 slow: 6 samples, 1f1b, 4 micro-batches"
