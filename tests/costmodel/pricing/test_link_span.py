"""Which link levels a collective crosses, against every place that it can lie in."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from generators.plan_cases import Case, Sizes, sharded

from shardwright.costmodel.lowering.step_work import step_work
from shardwright.costmodel.pricing.collectives import (
    collective_seconds,
    crossed_levels,
    members_inside,
)
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.work_items import Collective, Kernel

MIB = 2**20


def racks(nodes_per_rack: int) -> ClusterSpec:
    """4 nodes of 8 H100, with a level for racks of so many nodes."""
    spec = parse_cluster("4x8xH100@8x400G-IB").cluster
    outer = spec.levels[-1]
    rack = replace(outer, group_size=8 * nodes_per_rack)
    return replace(spec, levels=(spec.levels[0], rack, replace(outer, level="inter_rack")))


@pytest.mark.parametrize("group_size", [2, 4, 6, 8])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 12])
def test_members_inside_is_the_smallest_part_of_any_block(
    ranks: int, stride: int, group_size: int
) -> None:
    """Blocks tile the devices from 0 on, for longer than the pattern needs to repeat."""
    smallest = ranks
    for block, offset in itertools.product(range(2 * group_size), range(stride)):
        devices = [(block * ranks + i) * stride + offset for i in range(ranks)]
        parts = Counter(device // group_size for device in devices)
        smallest = min(smallest, *parts.values())
    assert members_inside(ranks, stride, group_size) <= smallest
    if group_size % stride == 0:
        assert members_inside(ranks, stride, group_size) == smallest


def test_naming_racks_costs_next_to_nothing() -> None:
    plain, racked = Machine(parse_cluster("4x8xH100@8x400G-IB").cluster), Machine(racks(2))
    for size in (256 * MIB, 1024 * MIB):
        item = Collective("all_gather", 32, 1, size, "bf16")
        ours, theirs = collective_seconds(item, racked), collective_seconds(item, plain)
        assert ours == pytest.approx(theirs, rel=0.05)


def test_a_group_of_three_leaves_a_node_of_eight() -> None:
    machine = Machine(parse_cluster("3x8xH100").cluster)
    crossed = crossed_levels(3, 1, machine)
    assert [c.level.level for c in crossed] == ["intra_rack"]
    assert crossed[0].members == 1
    three, four = (
        collective_seconds(Collective("all_gather", n, 1, 64 * MIB, "bf16"), machine)
        for n in (3, 4)
    )
    assert three > 3 * four


def pipeline(order: tuple[int, ...]) -> Plan:
    """Four stages of four devices on two nodes of eight, at these first devices."""
    sizes = Sizes(hidden=512, heads=8, kv_heads=8, ffn=1024, blocks=6, vocab=512)
    case = Case(name="four", ranks=16, stages=4, micro_batch=4, seq_len=2048, sizes=sizes)
    plan = case.plan()
    spec = parse_cluster("2x8xH100").cluster
    stages = tuple(
        replace(
            stage,
            devices=(replace(stage.devices[0], device_group="main", first_rank=4 * place),),
        )
        for stage, place in zip(plan.program.stages, order, strict=True)
    )
    return replace(plan, cluster=spec, programs=(replace(plan.program, stages=stages),))


def test_where_stages_lie_matters() -> None:
    """Every boundary between nodes instead of one of three."""
    seconds = []
    for order in ((0, 1, 2, 3), (0, 2, 1, 3)):
        plan = pipeline(order)
        simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
        seconds.append(simulator.run(plan).step_time_s)
    assert seconds[1] > seconds[0]


@pytest.mark.parametrize("name", ["shardwright", "megatron"])
@pytest.mark.parametrize("level", ["zero0", "zero1"])
@pytest.mark.parametrize("stages", [1, 2])
def test_no_work_is_negative(name: str, level: str, stages: int) -> None:
    sizes = Sizes(gpt2=True, tied=True, hidden=64, vocab=512)
    width = 4 // stages
    case = Case(name="tied", sizes=sizes, stages=stages, strategies=sharded(level, width))
    plan = case.plan()
    for stage in range(stages):
        for item in step_work(plan, stack(name), stage):
            if isinstance(item, Kernel):
                assert min(*item.shape, item.traffic_bytes, item.flops) >= 0
                assert item.traffic_bytes > 0
            else:
                assert item.payload_bytes > 0


def test_products_that_accumulate_leave_nothing_to_add() -> None:
    fused = stack("megatron")
    plain = replace(fused, fusion=replace(fused.fusion, weight_gradient_accumulation=False))
    plan = Case(name="plain", sizes=Sizes(hidden=256, ffn=512), ranks=1, micro_batch=2).plan()
    seconds = []
    for chosen in (fused, plain):
        simulator = Simulator.for_plan(plan, Machine(parse_cluster("1xA100").cluster), chosen)
        seconds.append(simulator.run(plan).step_time_s)
    assert seconds[0] < seconds[1]


def step_s(ranks: int, stages: int, tp: int, cluster: str) -> float:
    sizes = Sizes(hidden=384, heads=12, kv_heads=12, ffn=768, vocab=768)
    case = Case(
        name="odd",
        ranks=ranks,
        stages=stages,
        sizes=sizes,
        seq_len=1024,
        strategies=replace(sharded("zero0", 1), tp=tp),
        global_batch=12,
        micro_batch=ranks // stages // tp,
    )
    stages_ = tuple(
        replace(stage, devices=(replace(stage.devices[0], device_group="main"),))
        for stage in case.plan().program.stages
    )
    plan = case.plan()
    program = replace(plan.program, stages=stages_)
    plan = replace(plan, cluster=parse_cluster(cluster).cluster, programs=(program,))
    simulator = Simulator.for_plan(plan, Machine(plan.cluster), stack("shardwright"))
    return simulator.run(plan).step_time_s


@pytest.mark.parametrize(("ranks", "stages", "tp"), [(3, 1, 3), (6, 1, 3), (6, 2, 3), (8, 2, 4)])
def test_devices_that_stay_idle_cost_nothing(ranks: int, stages: int, tp: int) -> None:
    one, two = (step_s(ranks, stages, tp, c) for c in ("1x8xH100", "2x8xH100"))
    assert one == two


def test_only_stages_that_reach_over_the_edge_pay_for_it() -> None:
    """Groups of 3 in stages of 6: ranks 6 to 8 of the second lie in two nodes."""
    assert step_s(12, 2, 3, "2x8xH100") > step_s(12, 2, 3, "1x8xH100") * 1.2
    assert step_s(6, 1, 3, "2x8xH100") == step_s(6, 1, 3, "1x8xH100")
