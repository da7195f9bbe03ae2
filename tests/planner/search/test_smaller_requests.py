"""More of any resource never makes an answer worse."""

from __future__ import annotations

import random

import pytest
from generators.growth import GROWTH
from generators.random_plans import Drawer
from generators.samples import random_problem
from oracles.brute_force import Space, simulator_of
from published.planning import RULE, parts_of, planned, request_of

from shardwright.planner.search.smaller_requests import smaller_requests
from shardwright.planner.search.work_limits import Limits, Quota

WORSE, DEVICES, PAIRS = 1e-3, 2, 2
LITTLE = Limits(
    estimates=40,
    heuristic_shapes=2,
    heuristic_shapes_open=1,
    heuristic_layouts=1,
    min_memory=2,
    local_search_shapes=1,
    heuristic_layers=1,
    enumerated_shape=1,
    proof=Quota(1, 1, 1),
    rest=Quota(1, 40, 40),
    rest_of_shape=Quota(1, 10, 10),
    local_search=Quota(0, 40, 40),
)
"""Limits that prove nothing, so that smaller requests are searched too."""


def with_random_memory(space: Space, source: random.Random) -> Space:
    simulation = simulator_of(space).run(Drawer(space, source).draft().plan(space))
    assert simulation is not None
    need = max(row.reserved_bytes for row in simulation.memory) * RULE.margin
    return space.with_memory(int(need * source.uniform(0.9, 1.1)))


@pytest.mark.parametrize("what", sorted(GROWTH))
def test_more_is_never_worse(what: str) -> None:
    source = random.Random(f"growth of {what}")
    for seed in range(PAIRS):
        space = with_random_memory(random_problem(seed, DEVICES), source)
        more = GROWTH[what](space, source)
        less_result, more_result = (planned(s, LITTLE) for s in (space, more))
        if less_result is None:
            continue
        assert more_result is not None, (what, seed)
        less_s, more_s = (r.outcomes[0].step_time_s for r in (less_result, more_result))
        assert more_s <= less_s * (1 + WORSE), (what, seed)


def test_the_answer_without_host_memory_is_an_incumbent() -> None:
    """A search that tries nothing itself answers with that of the smaller request."""
    space = random_problem(1, DEVICES)
    granted = GROWTH["host"](space, random.Random(0))
    smaller = smaller_requests(request_of(granted))
    assert [r.cluster for r in smaller] == [space.cluster]
    assert not smaller_requests(request_of(space))
    alone = planned(space, LITTLE)
    assert alone is not None
    with_it = parts_of(granted, LITTLE)
    nodes = with_it.engine.list_shapes()
    with_it.improvements.run(nodes, set())
    best = with_it.incumbents.best()
    assert best is not None
    assert best.step_time_s <= alone.outcomes[0].step_time_s
