"""What a plan over two device groups costs does not depend on devices that it leaves idle."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from mixed_bounds import random_mixed_problem
from mixed_oracle import with_one_more
from oracle import simulator_of
from random_mixed_plans import MixedDrawer

PLANS = 12


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("number", [0, 1])
def test_a_step_takes_as_long_beside_an_idle_device(seed: int, number: int) -> None:
    space = random_mixed_problem(seed, most_blocks=2)
    drawer = MixedDrawer(space, random.Random(f"idle {seed}"))
    larger = with_one_more(space.cluster, number)
    for _ in range(PLANS):
        plan = drawer.draft().plan
        same = replace(plan, cluster=larger)
        own, beside = (
            simulator_of(replace(space, cluster=each.cluster)).run(each) for each in (plan, same)
        )
        assert own is not None
        assert beside is not None
        assert beside.step_time_s == own.step_time_s
