"""Seeded spaces of chunks beside tensor-parallel collectives, layer by layer, and of pairs."""

from __future__ import annotations

import random
from dataclasses import replace

from generators.plan_cases import Sizes
from oracles.brute_force import Restriction, Space, plan_count
from published.nested_spaces import random_levels
from toys.technique_spaces import small_space

from shardwright.planner.techniques import SHIPPED

NAME = "tp_overlap"
LEAST_PLANS, MOST_PLANS = 200, 1500
CLUSTERS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("1x2xA100-80GB", (2,)),
    ("1x4xL40S-48GB", (4,)),
    ("2x2xH100-80GB", (2, 4)),
    ("2x4xH100-80GB", (4, 8)),
)
"""Clusters, and the sizes of their levels' groups."""
WORDS = (
    ("none", "chunked:2", "chunked:4", "chunked:8"),
    ("none", "chunked:2", "fused"),
    ("none", "chunked:8"),
)
PAIRS = (
    None,
    Restriction(axis="cpu_offload", allowed=("none", "all")),
    Restriction(axis="quantized_communication", allowed=("none", "sdp4bit")),
    Restriction(axis="activation_swap", allowed=("none", "swap:1")),
)
"""Another technique whose words the same layers choose among."""


def overlapped_space(seed: int, most: int = MOST_PLANS) -> Space:
    """A space of layers' numbers of chunks, memory not yet capped."""
    source = random.Random(f"overlapped {seed}")
    while True:
        space = _drawn(source)
        if LEAST_PLANS <= plan_count(space, most) <= most:
            return space


def _drawn(source: random.Random) -> Space:
    cluster, sizes = source.choice(CLUSTERS)
    hidden, pair = source.choice([256, 1024, 4096]), source.choice(PAIRS)
    degrees = [d for d in (2, 4, 8) if d <= sizes[-1]]
    shard = "zero1" if pair is not None and pair.axis == "quantized_communication" else "zero0"
    restrictions = [
        Restriction(axis="recompute", allowed=source.choice([("none",), ("none", "full")])),
        Restriction(axis="cp", allowed=(1,)),
        Restriction(axis="tp", allowed=(source.choice(degrees),)),
        Restriction(axis="sp", allowed=source.choice([("megatron",), ("none", "megatron")])),
        Restriction(axis="pp", allowed=source.choice([(1,), (1, 2)])),
        Restriction(axis="vpp", allowed=(1,)),
        Restriction(axis="schedule", allowed=source.choice([("1f1b",), ("1f1b", "zero_bubble")])),
        Restriction(axis="micro_batch", allowed=source.choice([(1,), (1, 2), (2, 4)])),
        Restriction(axis="shard", allowed=(shard,)),
        *(() if pair is None else (pair,)),
    ]
    space = small_space(
        SHIPPED,
        NAME,
        source.choice(WORDS),
        *restrictions,
        cluster=cluster,
        sizes=Sizes(
            blocks=source.choice([2, 3]), hidden=hidden, heads=8, kv_heads=8, ffn=4 * hidden,
            vocab=512,
        ),
        dtype="bf16",
    )  # fmt: skip
    workload = replace(
        space.workload, global_batch=source.choice([4, 8]), seq_len=source.choice([256, 1024])
    )
    return replace(
        space,
        cluster=replace(space.cluster, levels=random_levels(source, sizes)),
        workload=workload,
        techniques=replace(SHIPPED, allowed=(("quantized_communication", 1.0),)),
    )
