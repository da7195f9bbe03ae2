"""A plan over two device groups costs the same beside devices that it leaves idle.

Links have typed rates here; a catalogued fabric gives a device its share of a full node.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from generators.random_heterogeneous_plans import MixedDrawer
from oracles.brute_force import simulator_of
from oracles.heterogeneous_bounds import random_mixed_problem
from oracles.heterogeneous_oracle import with_one_more

from shardwright.costmodel.pricing.group_pricer import used_groups

PLANS = 12


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("number", [0, 1])
def test_a_step_takes_as_long_beside_an_idle_device(seed: int, number: int) -> None:
    space = random_mixed_problem(seed, most_blocks=2)
    drawer = MixedDrawer(space, random.Random(f"idle {seed}"))
    larger = with_one_more(space.cluster, number)
    for _ in range(PLANS):
        plan = drawer.draft().plan(space)
        same = replace(plan, cluster=larger)
        own, beside = (
            simulator_of(replace(space, cluster=each.cluster)).run(each) for each in (plan, same)
        )
        assert own is not None
        assert beside is not None
        assert beside.step_time_s == own.step_time_s


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("number", [0, 1])
def test_the_norm_takes_as_long_behind_an_idle_device(seed: int, number: int) -> None:
    """A group that is held from its second device on is no larger, and still joined to others."""
    space = random_mixed_problem(seed, most_blocks=2)
    drawer = MixedDrawer(space, random.Random(f"behind {seed}"))
    larger = with_one_more(space.cluster, number)
    name = larger.groups[number].name
    compared = 0
    for _ in range(PLANS):
        plan = drawer.draft().plan(space)
        stages = tuple(
            replace(
                stage,
                devices=tuple(
                    replace(part, first_rank=part.first_rank + 1)
                    if part.device_group == name
                    else part
                    for part in stage.devices
                ),
            )
            for stage in plan.program.stages
        )
        behind = replace(plan, cluster=larger, programs=(replace(plan.program, stages=stages),))
        if len(used_groups(plan)) == 1:
            continue
        own, shifted = (
            simulator_of(replace(space, cluster=each.cluster)).run(each) for each in (plan, behind)
        )
        assert own is not None
        assert shifted is not None
        assert shifted.norm_s == own.norm_s
        compared += 1
    assert compared > 0
