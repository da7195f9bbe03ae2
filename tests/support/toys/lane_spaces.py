"""Spaces whose techniques work on lanes: blocks that park, and states on the host."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from generators.random_plans import Drawer
from oracles.brute_force import Restriction, Space
from toys.parking_choice import KNOWN as PARKING
from toys.parking_price import PRICE as PARKING_PRICE
from toys.parking_price import layer as parked
from toys.technique_spaces import small_space, with_host

from shardwright.costmodel.layers.layer import LayerSegment
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.costmodel.technique import LayerAddition
from shardwright.planner.technique import KnownTechniques
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.plan.plan import Plan
from shardwright.spec.schedules.stage_order import SCHEDULE_KINDS

LANE_CLUSTERS = ("1x4xA100-80GB", "2x2xH100", "2x2xT4")
PARKED, OFFLOADED = "parked_outputs", "cpu_offload"


def _freeing(segment: LayerSegment, shape: LayerShape) -> LayerAddition:
    """Parking that frees a byte: a value that only adds is in no table of a search."""
    return replace(parked(segment, shape), kept_bytes=-1)


LANE_TECHNIQUES = KnownTechniques(
    values=(*SHIPPED.values, *PARKING.values),
    prices=(*SHIPPED.prices, replace(PARKING_PRICE, layer=_freeing)),
    choices=(*SHIPPED.choices, *PARKING.choices),
)


@cache
def lane_space(cluster: str = LANE_CLUSTERS[0], batch: int = 4) -> Space:
    """Blocks that park, keep states on the host, or both; sharding of every kind."""
    restrictions = (
        Restriction(axis="recompute", allowed=("none",)),
        Restriction(axis="compile", allowed=("none",)),
        Restriction(axis=OFFLOADED, allowed=("none", "optimizer", "all")),
    )
    words = ("none", "all", "part:0.5")
    space = small_space(LANE_TECHNIQUES, PARKED, words, *restrictions, cluster=cluster)
    workload = replace(space.workload, global_batch=batch)
    return with_host(replace(space, workload=workload), 10**10)


def lane_plans(seed: int, cluster: str = LANE_CLUSTERS[0]) -> Iterator[Plan]:
    """Random plans of which some layer's technique is on a lane."""
    space = lane_space(cluster)
    drawer = Drawer(space, random.Random(f"lanes {seed}"), SCHEDULE_KINDS)
    while True:
        plan = drawer.draft().plan(space)
        if any({PARKED, OFFLOADED} & {*s.techniques} for s in plan.layer_strategies()):
            yield plan
