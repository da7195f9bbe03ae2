"""The cheapest plan is that of the brute force, proven, at any price list."""

from __future__ import annotations

import math
import random

import pytest
from generators.random_spaces import random_cap, random_space
from oracles.brute_force import Space, solve
from published.planning import EQUAL, RULE, planned

from shardwright.planner.space.objective import StepCost
from shardwright.spec.plan.rental_prices import RentalPrices, plan_per_s

SEEDS, MOST_PLANS = 16, 900


def random_prices(source: random.Random, space: Space) -> RentalPrices:
    """A price of devices, and now and then one of nodes that outweighs them."""
    group = space.cluster.groups[0]
    node = {group.device: 10 ** source.uniform(-2, 2)} if source.random() < 0.6 else {}
    named = source.choice([group.name, group.device])
    hours = {named: 10 ** source.uniform(-1, 1)}
    return RentalPrices(currency="EUR", device_hour=hours, node_hour=node)


def written_price_per_s(space: Space, prices: RentalPrices, devices: int) -> float:
    """The price of the first so many devices, written a second time."""
    group = space.cluster.groups[0]
    hour = next(iter(prices.device_hour.values())) * devices
    for price in prices.node_hour.values():
        hour += price * math.ceil(devices / group.devices_per_node)
    return hour / 3600


def cost_of(space: Space, prices: RentalPrices) -> tuple[float, float, float] | None:
    """Value of the best plan, its proven bound, and its cost as the plan's document says."""
    found = planned(space, objective=StepCost(prices, space.cluster.groups[0]))
    if found is None:
        return None
    assert found.stopped_by == "proof"
    best = found.outcomes[0]
    assert found.lower_bound_s <= min(o.step_time_s for o in found.outcomes) * (1 + EQUAL)
    return found.lower_bound, plan_per_s(best.plan, prices) * best.step_time_s, best.step_time_s


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(180)
def test_the_cheapest_plan_is_that_of_the_oracle(seed: int) -> None:
    source = random.Random(f"prices {seed}")
    space = random_space(seed + 100, MOST_PLANS)
    answer = solve(space)
    capacity = random_cap(random.Random(f"cap {seed}"), answer, RULE)
    limited = space.with_memory(capacity)
    fastest_s = answer.best_s(capacity, RULE)
    for _ in range(3):
        prices = random_prices(source, space)
        wanted = answer.best_cost(
            capacity, RULE, lambda n, p=prices: written_price_per_s(space, p, n)
        )
        found = cost_of(limited, prices)
        if found is None:
            assert wanted == math.inf
            continue
        bound, cost, step_s = found
        assert math.isclose(cost, wanted, rel_tol=EQUAL)
        assert math.isclose(bound, wanted, rel_tol=EQUAL)
        assert step_s >= fastest_s * (1 - EQUAL)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.timeout(120)
def test_a_lower_price_never_raises_the_least_cost(seed: int) -> None:
    source = random.Random(f"lower {seed}")
    space = random_space(seed + 300, MOST_PLANS)
    prices = random_prices(source, space)
    lower = RentalPrices(
        currency="EUR",
        device_hour={n: p * source.uniform(0.2, 1) for n, p in prices.device_hour.items()},
        node_hour={n: p * source.uniform(0, 1) for n, p in prices.node_hour.items()},
    )
    dear, cheap = cost_of(space, prices), cost_of(space, lower)
    assert dear is not None
    assert cheap is not None
    assert cheap[1] <= dear[1] * (1 + EQUAL)


@pytest.mark.evidence
def test_idle_devices_cost_nothing_and_idle_nodes_neither() -> None:
    """Where a node's price outweighs all else, no plan leaves the first node."""
    crossed = 0
    for seed in range(100, 160):
        space = random_space(seed, MOST_PLANS)
        group = space.cluster.groups[0]
        if group.nodes == 1:
            continue
        prices = RentalPrices(currency="EUR", device_hour={"main": 1e-9}, node_hour={"main": 1e6})
        found = planned(space, objective=StepCost(prices, group))
        assert found is not None
        shape = found.outcomes[0].decision.shape
        fastest = planned(space)
        assert fastest is not None
        fast = fastest.outcomes[0].decision.shape
        crossed += fast.stages * fast.ranks > group.devices_per_node >= shape.stages * shape.ranks
        if crossed == 3:
            break
    assert crossed == 3
