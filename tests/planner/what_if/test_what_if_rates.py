"""Changed rates: better figures never make a plan slower, and bounds still hold under them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from generators.catalogue_problems import problem, space_of
from generators.random_plans import Drawer
from generators.samples import random_problem, sample
from oracles.brute_force import Space, simulator_of
from published.planning import RULE, request_of

from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.pricing.rate_changes import NO_RATE_CHANGES, LinkRateChange, RateChanges
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.planner.candidates.evaluator import Evaluator
from shardwright.planner.search.build import single_group_search
from shardwright.planner.search.work_limits import Limits, Quota
from shardwright.spec.cluster.cluster_spec import LEVEL_ORDER
from shardwright.spec.errors import InfeasibleError

SEEDS = range(60)
ROUNDING = 1e-12


def changed_simulator(space: Space, rates: RateChanges) -> Simulator:
    machine = replace(simulator_of(space).pricer.machine, rates=rates)
    lowering = Lowering(space.model, space.workload, space.stack)
    return Simulator(lowering, Pricer(machine, space.stack))


def random_better(source: random.Random, space: Space) -> RateChanges:
    """Some links and figures better, none worse."""
    links = tuple(
        LinkRateChange(
            level=level.level,
            bandwidth_factor=source.choice([1.0, 1.1, 2.0, 100.0]),
            latency_factor=source.choice([1.0, 0.9, 0.5, 0.001]),
        )
        for level in space.cluster.levels
        if source.random() < 0.7
    )
    if source.random() < 0.5:
        return RateChanges(links=links)
    return RateChanges(
        flops_factor=source.choice([1.0, 1.5, 10.0]),
        memory_bandwidth_factor=source.choice([1.0, 1.2, 4.0]),
        kernel_launch_factor=source.choice([1.0, 0.5]),
        host_launch_factor=source.choice([1.0, 0.1]),
        links=links,
    )


def test_better_figures_never_slow_a_plan_down() -> None:
    """Over random plans of random machines, with and without measured profiles."""
    faster = measured = 0
    for seed in SEEDS:
        found = sample(seed)
        source = random.Random(f"better {seed}")
        for _ in range(3):
            rates = random_better(source, found.space)
            simulation = changed_simulator(found.space, rates).run(found.plan)
            assert simulation is not None
            limit_s = found.simulation.step_time_s * (1 + ROUNDING)
            assert simulation.step_time_s <= limit_s, (seed, rates)
            faster += simulation.step_time_s < found.simulation.step_time_s * (1 - 1e-6)
        measured += found.space.profile is not None
    assert faster >= len(SEEDS)
    assert measured >= 3


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("llama-3-8b", "2x8xH100-80GB"), ("moonlight", "2x8xH100-80GB"),
     ("gpt2", "20x4xGB200"), ("llama-3-8b", "2x8xA100-40GB@100G-ETH")],
)  # fmt: skip
def test_faster_links_never_slow_catalogue_plans_down(model: str, cluster: str) -> None:
    space = space_of(problem(model, cluster, 64, 1024))
    source = random.Random(f"links {model} {cluster}")
    drawer = Drawer(space, source, kinds=space.stack.schedules)
    base = simulator_of(space)
    quicker = 0
    for _ in range(6):
        plan = drawer.draft(idle=False).plan(space)
        step_s = _step_s(base, plan)
        for level in [level.level for level in space.cluster.levels]:
            last_s = step_s
            for factor in (1.5, 2.0, 64.0):
                wider = LinkRateChange(level=level, bandwidth_factor=factor)
                quick = LinkRateChange(level=level, latency_factor=1 / factor)
                wide_s = _step_s(changed_simulator(space, RateChanges(links=(wider,))), plan)
                quick_s = _step_s(changed_simulator(space, RateChanges(links=(quick,))), plan)
                assert wide_s <= last_s * (1 + ROUNDING)
                assert quick_s <= step_s * (1 + ROUNDING)
                last_s = wide_s
            quicker += last_s < step_s * (1 - 1e-9)
    assert quicker > 1


def _step_s(simulator: Simulator, plan: object) -> float:
    found = simulator.run(plan)  # type: ignore[arg-type]
    assert found is not None
    return found.step_time_s


def test_a_wider_link_is_what_a_person_types() -> None:
    """Without measurements a factor on a link and a typed rate price every plan alike."""
    space = space_of(problem("llama-3-8b", "2x8xH100-80GB", 64, 1024))
    nominal = simulator_of(space).pricer.machine.levels[-1].bandwidth_bytes_per_s
    typed = replace(space.cluster.levels[-1], bandwidth_bytes_per_s=0.25 * nominal)
    levels = (*space.cluster.levels[:-1], typed)
    other = replace(space, cluster=replace(space.cluster, levels=levels))
    rates = RateChanges(links=(LinkRateChange(level=typed.level, bandwidth_factor=0.25),))
    drawer, moved = Drawer(space, random.Random("typed")), 0
    for _ in range(10):
        draft = drawer.draft(idle=False)
        plan = draft.plan(space)
        slower_s = _step_s(changed_simulator(space, rates), plan)
        assert math.isclose(
            slower_s, _step_s(simulator_of(other), draft.plan(other)), rel_tol=1e-12
        )
        moved += slower_s > _step_s(simulator_of(space), plan)
    assert moved > 3


def test_rates_as_listed_change_nothing() -> None:
    found = sample(3)
    same = changed_simulator(found.space, NO_RATE_CHANGES)
    assert same.pricer.machine.listed is same.pricer.machine
    assert _step_s(same, found.plan) == found.simulation.step_time_s


LITTLE = Limits(
    heuristic_shapes=4,
    estimates=60,
    proof=Quota(20_000, 300, 100),
    rest=Quota(2000, 50, 20),
    local_search_shapes=0,
)


def test_no_plan_beats_the_bound_under_changed_rates() -> None:
    """Random plans in settings with other rates, better and worse ones."""
    searched = 0
    for seed in range(8):
        space = random_problem(seed, 8)
        source = random.Random(f"bound {seed}")
        rates = RateChanges(
            flops_factor=source.choice([0.3, 3.0]),
            memory_bandwidth_factor=source.choice([0.5, 2.0]),
            links=tuple(
                LinkRateChange(
                    level=level, bandwidth_factor=source.choice([0.1, 10.0]), latency_factor=3.0
                )
                for level in LEVEL_ORDER
            ),
        )
        simulator = changed_simulator(space, rates)
        try:
            found = single_group_search(Evaluator(request_of(space), simulator, RULE), LITTLE).run()
        except InfeasibleError:
            continue
        searched += 1
        drawer = Drawer(space, source, kinds=space.stack.schedules)
        for _ in range(30):
            step_s = _step_s(simulator, drawer.draft().plan(space))
            assert step_s >= found.lower_bound_s * (1 - 1e-9), seed
    assert searched >= 5
