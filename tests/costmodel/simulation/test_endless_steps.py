"""Steps that no number counts are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.plan_cases import Case

from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.errors import InputError


def test_a_step_that_never_ends_is_refused() -> None:
    """A plan's document may have rates that no cluster's file has."""
    plan = Case(name="four ranks").plan()
    levels = tuple(replace(level, bandwidth_bytes_per_s=1e-311) for level in plan.cluster.levels)
    slow = replace(plan, cluster=replace(plan.cluster, levels=levels))
    used = stack("shardwright", on_cores=True)
    with pytest.raises(InputError, match=r"^cluster\.levels: got a step that never ends"):
        Simulator.for_plan(slow, Machine(slow.cluster), used).run(slow)
    found = Simulator.for_plan(plan, Machine(plan.cluster), used).run(plan)
    assert 0 < found.step_time_s < 1e3
