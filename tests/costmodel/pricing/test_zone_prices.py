"""Links inside zones and between them: what a message, a collective and a whole step take."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from generators.catalogue_problems import problem, space_of
from generators.random_heterogeneous_plans import MixedDrawer
from generators.zoned_clusters import in_zones, random_zoned_cluster
from oracles.brute_force import Space, simulator_of
from oracles.heterogeneous_bounds import random_mixed_problem

import shardwright as sw
from shardwright.costmodel.pricing.collectives import (
    collective_seconds,
    crossed_levels,
    message_seconds,
)
from shardwright.costmodel.pricing.group_pricer import GroupPricer
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulation
from shardwright.datasets.catalogue.links import link_rates
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.plan.plan import Plan, StageDevices
from shardwright.spec.report.work_items import Collective

MIB = 2**20
RATES = {"bandwidth_bytes_per_s": 1e9, "latency_s": 2e-3}
H100 = "1x8xH100@8x400G-IB"
FOUR = in_zones(parse_cluster("+".join([H100] * 4)).cluster, ("a", "a", "b", "b"), *RATES.values())


def _one_group() -> ClusterSpec:
    """The devices of FOUR as nodes of one group, with a level for each way that they are joined."""
    one = parse_cluster("4x8xH100@8x400G-IB").cluster
    node, network = one.levels
    inside = replace(network, level="intra_rack", group_size=16)
    outer = replace(FOUR.levels[1], level="inter_rack")
    return replace(one, levels=(node, inside, outer))


def _run(space: Space, cluster: ClusterSpec, plan: Plan) -> Simulation:
    simulator = simulator_of(replace(space, cluster=cluster))
    found = simulator.run(replace(plan, cluster=cluster))
    assert found is not None
    return found


def _part(group: str, first: int = 0, count: int = 8) -> StageDevices:
    return StageDevices(device_group=group, first_rank=first, count=count)


def test_a_message_takes_the_level_that_joins_its_ends() -> None:
    space = space_of(problem("gpt2", "4x8xH100", 32, 1024))
    prices = GroupPricer(simulator_of(replace(space, cluster=FOUR)).pricer)
    inside, between = (link_rates(FOUR, level) for level in FOUR.levels)
    near = prices.message_s(MIB, _part("h100"), _part("h100-2"))
    far = prices.message_s(MIB, _part("h100-2"), _part("h100-3"))
    assert near == message_seconds(MIB, inside)
    assert far == message_seconds(MIB, between)
    assert far == prices.message_s(MIB, _part("h100-4"), _part("h100")) > 10 * near


@pytest.mark.parametrize(("model", "tp"), [("gpt2-medium", 8), ("gpt2-medium", 2), ("gpt2-xl", 1)])
def test_a_pipeline_over_zones_is_one_over_levels(model: str, tp: int) -> None:
    """Messages inside zones and between them, the norm, and the table of both ends."""
    flags = {"tp": tp, "pp": 4, "global_batch": 32, "seq_len": 1024, "dtype": "bf16"}
    zoned, one = (sw.simulate(model, each, **flags) for each in (FOUR, _one_group()))
    ours, theirs = zoned.report.prediction, one.report.prediction
    assert ours.step_time_s == theirs.step_time_s
    assert ours.breakdown_s == theirs.breakdown_s


@pytest.mark.parametrize("shard", ["zero0", "zero1", "zero3"])
def test_a_stage_over_zones_crosses_both_levels(shard: str) -> None:
    found = problem("gpt2-xl", "4x8xH100", 32, 1024)
    one, space = _one_group(), space_of(found)
    flags = {"global_batch": 32, "seq_len": 1024, "dtype": "bf16", "shard": shard}
    plan = sw.simulate("gpt2-xl", one, **flags).report.plan
    (stage,) = plan.program.stages
    parts = tuple(replace(_part(group.name), batch_share=0.25) for group in FOUR.groups)
    stages = (replace(stage, devices=parts),)
    shared = replace(plan, cluster=FOUR, programs=(replace(plan.program, stages=stages),))
    assert shared.check() == []
    assert _run(space, FOUR, shared).step_time_s == _run(space, one, plan).step_time_s


def test_the_norm_crosses_both_levels() -> None:
    """By hand: over the ranks of a node, two nodes of a zone, and two zones."""
    machine = Machine(replace(_one_group(), groups=FOUR.alone("h100").groups))
    item = Collective("all_reduce", 32, 1, 4, "fp32")
    crossed = [(x.level.level, x.groups, x.members) for x in crossed_levels(32, 1, machine)]
    assert crossed == [("intra_node", 8, 1), ("intra_rack", 2, 8), ("inter_rack", 2, 16)]
    flags = {"tp": 8, "pp": 4, "global_batch": 32, "seq_len": 1024, "dtype": "bf16"}
    plan = sw.simulate("gpt2-medium", FOUR, **flags).report.plan
    space = space_of(problem("gpt2-medium", "4x8xH100", 32, 1024))
    prices = GroupPricer(simulator_of(replace(space, cluster=FOUR)).pricer)
    assert prices.all_ranks_collective_s(plan, item) == collective_seconds(item, machine)
    assert prices.all_ranks_collective_s(plan, item) >= 2 * RATES["latency_s"]


@pytest.mark.parametrize("seed", range(6))
def test_two_zones_of_one_group_each_are_two_groups(seed: int) -> None:
    """Nothing takes the level inside a zone, and that between them is as any that joins groups."""
    space = random_mixed_problem(seed, most_blocks=2)
    zoned = in_zones(space.cluster, ("east", "west"), *RATES.values())
    join = replace(zoned.levels[1], level="inter_rack")
    flat = replace(space.cluster, levels=(join,))
    drawer = MixedDrawer(space, random.Random(f"zones {seed}"))
    for _ in range(12):
        plan = drawer.draft().plan(drawer.space)
        assert _run(space, zoned, plan).step_time_s == _run(space, flat, plan).step_time_s


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_inside_a_zone_knows_of_no_other(seed: int) -> None:
    space = random_mixed_problem(seed, 2, random_zoned_cluster)
    near = space.cluster.in_zone("near")
    drawer = MixedDrawer(replace(space, cluster=near), random.Random(f"near {seed}"))
    slow = replace(space.cluster.levels[1], bandwidth_bytes_per_s=1.0)
    slower = replace(space.cluster, levels=(space.cluster.levels[0], slow))
    for _ in range(12):
        plan = drawer.draft().plan(drawer.space)
        own = _run(space, near, plan)
        for cluster in (space.cluster, slower):
            beside = _run(space, cluster, plan)
            assert beside.step_time_s == own.step_time_s
            assert beside.norm_s == own.norm_s


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_over_zones_is_slower_over_slower_links(seed: int) -> None:
    space = random_mixed_problem(seed, 2, random_zoned_cluster)
    drawer = MixedDrawer(space, random.Random(f"far {seed}"))
    far = {group.name for group in space.cluster.groups if group.zone == "far"}
    latency_s = space.cluster.levels[1].latency_s
    assert latency_s is not None
    slow = replace(space.cluster.levels[1], latency_s=10 * latency_s)
    slower = replace(space.cluster, levels=(space.cluster.levels[0], slow))
    for _ in range(12):
        plan = drawer.draft().plan(drawer.space)
        used = {p.device_group for stage in plan.program.stages for p in stage.devices}
        now, then = (_run(space, each, plan).step_time_s for each in (space.cluster, slower))
        crosses = bool(used & far) and bool(used - far)
        assert then > now if crosses else then == now
