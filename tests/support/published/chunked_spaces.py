"""Seeded spaces of experts in which the planner finds the counts of chunks itself."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

from oracles.brute_force import Restriction, Space, plan_count
from published.nested_spaces import random_levels
from published.skewed_spaces import random_load
from ranks.expert_runs import ExpertSizes
from toys.technique_spaces import small_space

from shardwright.planner.techniques import SHIPPED
from shardwright.spec.model.feed_forward import Moe

NAME = "expert_pipelining"
LEAST_PLANS, MOST_PLANS = 200, 1500
CLUSTERS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("1x2xA100-80GB", (2,)),
    ("2x1xH100-80GB", (1, 2)),
    ("1x4xL40S-48GB", (4,)),
    ("2x2xA100-80GB", (2, 4)),
    ("2x2xH100-80GB", (2, 4)),
    ("2x4xH100-80GB", (4, 8)),
)
"""Clusters, and the sizes of their levels' groups."""
COUNTS = (1, 2, 4, 8)


def chunked_space(seed: int, most: int = MOST_PLANS, skewed: bool | None = None) -> Space:
    """A space of every pair of counts and both exchanges, memory not yet capped.

    ``skewed``: whether experts have unlike loads; of every other seed if None.
    """
    source = random.Random(f"chunked {seed}")
    while True:
        space = _drawn(source)
        if seed % 2 == 0 if skewed is None else skewed:
            load = random_load(source, space.model)
            space = replace(space, workload=replace(space.workload, expert_load=load))
        if LEAST_PLANS <= plan_count(space, most) <= most:
            return space


def _drawn(source: random.Random) -> Space:
    cluster, sizes = source.choice(CLUSTERS)
    hidden = source.choice([256, 512, 1024, 2048])
    moe = Moe(
        experts=source.choice([4, 8]),
        topk=source.choice([1, 2]),
        ffn=hidden * source.choice([1, 2, 4]),
        shared_ffn=source.choice([0, 0, hidden]),
    )
    blocks = source.choice([1, 2, 2])
    words = [f"{f}/{b}" for f, b in product(COUNTS, repeat=2) if f * b > 1]
    if len(sizes) > 1:
        node = f"@{sizes[0]}" if sizes[0] != 8 else ""
        words += [f"{f}/{b}:hierarchical{node}" for f, b in product(COUNTS, repeat=2)]
    ranks, degrees = sizes[-1], tuple(d for d in range(1, sizes[-1] + 1) if sizes[-1] % d == 0)
    kinds = source.choice([("1f1b",), ("1f1b",), ("gpipe", "1f1b"), ("1f1b", "zero_bubble")])
    restrictions = [
        Restriction(axis="recompute", allowed=source.choice([("none",), ("none",), ("full",)])),
        Restriction(axis="cp", allowed=(1,)),
        Restriction(axis="sp", allowed=("none",)),
        Restriction(axis="tp", allowed=source.choice([(1,), (1,), (2,)])),
        Restriction(axis="ep", allowed=source.choice([degrees, (ranks,), degrees[1:]])),
        Restriction(axis="etp", allowed=(1,)),
        Restriction(axis="pp", allowed=source.choice([(1,), (1, 2), (2,)])),
        Restriction(axis="vpp", allowed=(1,)),
        Restriction(axis="schedule", allowed=kinds),
        Restriction(axis="micro_batch", allowed=source.choice([(1,), (1, 2), (2, 4)])),
        Restriction(axis="shard", allowed=source.choice([("zero0",), ("zero1",), ("zero3",)])),
    ]
    space = small_space(
        SHIPPED,
        NAME,
        ("none", *words),
        *restrictions,
        cluster=cluster,
        sizes=ExpertSizes(blocks=blocks, hidden=hidden, ffn=hidden, vocab=512, moe=moe,
                          dense=source.randrange(blocks)),
        dtype=source.choice(["fp32", "bf16"]),
    )  # fmt: skip
    workload = replace(
        space.workload,
        global_batch=source.choice([4, 8]),
        seq_len=source.choice([64, 256, 1024]),
    )
    return replace(
        space,
        cluster=replace(space.cluster, levels=random_levels(source, sizes)),
        workload=workload,
        tried=(NAME,),
    )
