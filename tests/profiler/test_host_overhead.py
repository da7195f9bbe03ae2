"""The six constants of a machine, recovered from steps that were made with known ones."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from generators.random_spaces import random_profile

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.profiler.overhead.host_fit import non_negative_least_squares
from shardwright.profiler.overhead.host_overhead import CONSTANTS, MIN_PROBES, with_overheads
from shardwright.profiler.overhead.probes import message_probe, probe_plan, probes
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.plan.plan import Plan

KNOWN_S = {"kernel": 7e-6, "collective": 3e-4, "unit": 6e-4, "message": 1e-3, "step": 4e-3}


def made_up_profile(ranks: int) -> MachineProfile:
    cluster = parse_cluster(f"local:{ranks}").cluster
    found = random_profile(random.Random(0), cluster)
    assert found is not None
    return replace(found, host_s={})


def step_s(plan: Plan, profile: MachineProfile) -> float:
    chosen = stack("shardwright", on_cores=True)
    simulator = Simulator.for_plan(plan, Machine(plan.cluster, profile), chosen)
    return simulator.run(plan).step_time_s


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("coarse", [True, False])
def test_known_constants_are_recovered(ranks: int, coarse: bool) -> None:
    bare = made_up_profile(ranks)
    true = replace(bare, host_s=KNOWN_S, kernel_slowdown=1.25)
    found = with_overheads(bare, lambda plan: step_s(plan, true), coarse, lambda: False)
    assert found.kernel_slowdown == pytest.approx(1.25, rel=1e-6)
    for probe in probes(ranks, coarse):
        plan = probe_plan(probe, ranks)
        assert step_s(plan, found) == pytest.approx(step_s(plan, true), rel=1e-6)
    message_s = KNOWN_S["message"] if message_probe(ranks) is not None else 0.0
    assert found.host_s["message"] == pytest.approx(message_s, rel=1e-3)


def test_when_time_is_up_the_probes_so_far_do() -> None:
    bare = made_up_profile(2)
    measured: list[Plan] = []

    def measure(plan: Plan) -> float:
        measured.append(plan)
        return 1.5 * step_s(plan, bare)

    found = with_overheads(bare, measure, True, lambda: True)
    assert len(measured) == MIN_PROBES + 1, "the last is for messages"
    assert len(measured) < len(probes(2, coarse=True))
    constants = [found.host_s[name] for name in CONSTANTS] + [found.kernel_slowdown - 1]
    assert sum(value > 0 for value in constants) == 1, "no more than two steps can tell"
    for plan in measured[:MIN_PROBES]:
        assert step_s(plan, found) == pytest.approx(1.5 * step_s(plan, bare), rel=0.3)


def test_no_constant_is_negative() -> None:
    bare = replace(made_up_profile(2), host_s=dict.fromkeys(KNOWN_S, 0.0))
    found = with_overheads(bare, lambda plan: step_s(plan, bare) / 2, True, lambda: False)
    assert found.kernel_slowdown == 1
    assert set(found.host_s.values()) == {0.0}


@pytest.mark.parametrize("seed", range(20))
def test_least_squares_is_no_worse_than_its_neighbours(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    matrix, weights = numbers.uniform(size=(9, 4)), numbers.uniform(0.5, 2, size=9)
    values = matrix @ np.array([1.0, 0.0, -0.3, 2.0]) + numbers.normal(0, 0.1, 9)
    found = non_negative_least_squares(matrix, values, weights)

    def cost(solution: np.ndarray) -> float:
        return float((((matrix @ solution - values) * weights) ** 2).sum())

    assert (found >= 0).all()
    for column in range(4):
        for change in (1e-3, -1e-3):
            near = found.copy()
            near[column] = max(0.0, near[column] + change)
            assert cost(found) <= cost(near) + 1e-9
