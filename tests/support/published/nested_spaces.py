"""Seeded spaces in which states may shard over link levels, nested, beside lossy words."""

from __future__ import annotations

import random
from dataclasses import replace

from generators.plan_cases import Sizes
from generators.random_spaces import random_cap
from oracles.brute_force import Restriction, Space, plan_count, solve
from published.planning import RULE, Comparison, compare
from toys.technique_spaces import small_space

from shardwright.planner.techniques import SHIPPED
from shardwright.spec.cluster.cluster_spec import LevelName, LinkLevel

NAME = "quantized_communication"
LEAST_PLANS, MOST_PLANS = 100, 2000
CLUSTERS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("2x2xA100-80GB", (2, 4)),
    ("2x2xH100-80GB", (2, 4)),
    ("2x4xA100-80GB", (2, 4, 8)),
    ("3x2xA100-80GB", (2, 6)),
)
"""Clusters, and the sizes of their levels' groups."""
LEVELS: dict[int, tuple[LevelName, ...]] = {
    1: ("intra_node",),
    2: ("intra_node", "intra_rack"),
    3: ("intra_pair", "intra_node", "intra_rack"),
}
WORDS = (
    ("none",),
    ("none", "int8"),
    ("none", "sdp4bit@2"),
    ("none", "zero++@2"),
    ("none", "hpz8"),
    ("none", "zero++/hpz8@2"),
)


def nested_space(seed: int, most: int = MOST_PLANS) -> Space:
    """A space of nested degrees with few other choices, memory not yet capped."""
    source = random.Random(f"nested {seed}")
    while True:
        space = _drawn(source)
        if LEAST_PLANS <= plan_count(space, most) <= most:
            return space


def _drawn(source: random.Random) -> Space:
    cluster, sizes = source.choice(CLUSTERS)
    hidden = source.choice([128, 256, 512])
    ends = source.choice(["zero0", "zero1", "zero3"])
    restrictions = [
        Restriction(axis="recompute", allowed=("none",)),
        Restriction(axis="cp", allowed=(1,)),
        Restriction(axis="tp", allowed=source.choice([(1,), (1,), (2,)])),
        Restriction(axis="sp", allowed=("none",)),
        Restriction(axis="pp", allowed=source.choice([(1,), (1, 2)])),
        Restriction(axis="vpp", allowed=(1,)),
        Restriction(axis="schedule", allowed=("1f1b",)),
        Restriction(axis="micro_batch", allowed=source.choice([(1,), (1, 2)])),
        Restriction(axis="shard", allowed=(ends,), layers=(0, 0)),
        Restriction(axis="shard", allowed=(ends,), layers=(3, 3)),
    ]
    space = small_space(
        SHIPPED,
        NAME,
        source.choice(WORDS),
        *restrictions,
        cluster=cluster,
        sizes=Sizes(blocks=2, hidden=hidden, ffn=4 * hidden, vocab=512),
        dtype=source.choice(["fp32", "bf16"]),
    )
    workload = replace(space.workload, global_batch=source.choice([8, 16]))
    allowed = replace(SHIPPED, allowed=((NAME, 1.0),))
    return replace(
        space,
        cluster=replace(space.cluster, levels=random_levels(source, sizes)),
        workload=workload,
        techniques=allowed,
        nested=True,
    )


def random_levels(source: random.Random, sizes: tuple[int, ...]) -> tuple[LinkLevel, ...]:
    """Link levels of random rates, the innermost first, for groups of these sizes."""
    return tuple(
        LinkLevel(
            level=name,
            group_size=size,
            fabric="1x200G-IB" if size == sizes[-1] else "NVLink3",
            latency_s=10 ** source.uniform(-6, -4.5),
            bandwidth_bytes_per_s=10 ** source.uniform(11 - place, 11.7 - place),
        )
        for place, (name, size) in enumerate(zip(LEVELS[len(sizes)], sizes, strict=True))
    )


def compare_nested(seed: int, most: int = MOST_PLANS) -> Comparison:
    """Hold the planner against the brute force where degrees nest and memory often binds."""
    space = nested_space(seed, most)
    answer = solve(space)
    return compare(seed, space, answer, random_cap(random.Random(f"cap {seed}"), answer, RULE))
