"""Bytes of techniques on host and drive: counted pass by pass, and limited by capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.plan_cases import Case, Sizes
from oracles.brute_force import Restriction, simulator_of
from published.planning import planned
from toys.census_choice import CHOICE
from toys.census_value import TECHNIQUE, GradientCensus
from toys.technique_spaces import small_space

from shardwright.costmodel.layers.layer import LayerSegment
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.sharding.fsdp_unit import FsdpUnit
from shardwright.costmodel.sharding.param_groups import UnitShape
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.costmodel.symbolic.tier_bytes import StateBytes, total_bytes
from shardwright.costmodel.technique import (
    LayerAddition,
    TechniquePrice,
    with_addition,
)
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.technique import KnownTechniques
from shardwright.spec.plan.plan import Plan
from shardwright.spec.report.report import MemoryRow
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value

KEPT, HELD, MOVED = 1000, 30, 512
VALUES = (TECHNIQUE,)


def layer(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """Every micro-batch keeps some bytes on the host, and fewer on the device."""
    return LayerAddition(kept_bytes=-MOVED, kept_tier_bytes=(("host", KEPT),))


def unit(shape: UnitShape, own: FsdpUnit) -> FsdpUnit:
    """States have some on a drive."""
    return with_addition(own, TECHNIQUE.name, resident_tier_bytes=(StateBytes("nvme", HELD),))


PRICE = TechniquePrice(value=TECHNIQUE, layer=layer, unit=unit)
KNOWN = KnownTechniques(values=VALUES, prices=(PRICE,), choices=(replace(CHOICE, tried=None),))


def plan_of(kind: str = "1f1b", stages: int = 2, chunks: int = 1) -> Plan:
    strategy = with_value(LayerStrategy(), TECHNIQUE.name, GradientCensus())
    return Case(
        name=kind,
        sizes=Sizes(blocks=4),
        ranks=stages,
        stages=stages,
        chunks=chunks,
        kind=kind,  # type: ignore[arg-type]
        strategies=strategy,
        micro_batch=2,
        global_batch=8,
        techniques=VALUES,
    ).plan()


def rows(plan: Plan) -> list[MemoryRow]:
    machine = Machine(plan.cluster)
    simulation = Simulator.for_plan(plan, machine, stack("shardwright"), (PRICE,)).run(plan)
    assert simulation is not None
    return [*simulation.memory]


@pytest.mark.parametrize(
    ("kind", "flights"), [("1f1b", (2, 1)), ("gpipe", (4, 4)), ("zero_bubble", (2, 1))]
)
def test_a_tier_holds_the_micro_batches_in_flight(kind: str, flights: tuple[int, int]) -> None:
    found = rows(plan_of(kind))
    assert [(row.stage, row.tier) for row in found] == [
        (stage, tier) for stage in (0, 1) for tier in ("hbm", "host", "nvme")
    ]
    for row in found:
        assert sum(row.by.values()) == row.reserved_bytes
        if row.tier == "host":
            assert row.reserved_bytes == 2 * KEPT * flights[row.stage]
        if row.tier == "nvme":
            assert row.reserved_bytes == 2 * HELD
        if row.tier != "hbm":
            assert row.capacity_bytes == 0  # the cluster has none


def test_what_is_moved_away_is_not_on_the_device() -> None:
    plain = Case(name="plain", sizes=Sizes(blocks=4), ranks=2, stages=2, micro_batch=2).plan()
    with_it = [row for row in rows(plan_of("gpipe")) if row.tier == "hbm"]
    without = rows(replace(plain, programs=(_as(plain, "gpipe"),)))
    assert [row.tier for row in without] == ["hbm", "hbm"]
    for less, more in zip(with_it, without, strict=True):
        assert less.by["activations"] < more.by["activations"]


def _as(plan: Plan, kind: str) -> object:
    schedule = replace(plan.program.schedule, kind=kind)  # type: ignore[arg-type]
    return replace(plan.program, schedule=schedule)


def test_plans_must_fit_every_tier() -> None:
    few = [Restriction(axis="recompute", allowed=("none",)), Restriction(axis="pp", allowed=(2,))]
    space = small_space(KNOWN, TECHNIQUE.name, ("each",), *few)
    assert planned(space) is None
    groups = tuple(
        replace(g, memory=replace(g.memory, host_bytes=10**9, nvme_bytes=10**9))
        for g in space.cluster.groups
    )
    roomy = replace(space, cluster=replace(space.cluster, groups=groups))
    found = planned(roomy)
    assert found is not None
    assert found.stopped_by == "proof"
    simulation = simulator_of(roomy).run(found.outcomes[0].plan)
    assert simulation is not None
    assert {row.tier for row in simulation.memory} == {"hbm", "host", "nvme"}


def test_bytes_of_a_tier_are_summed_by_name() -> None:
    sizes = (("host", 1), ("nvme", 2), ("host", 4))
    assert [total_bytes(sizes, tier) for tier in ("host", "nvme")] == [5, 2]  # type: ignore[arg-type]
