"""Seeded spaces of techniques that use hosts, in every second of which the host's bytes bind."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from generators.plan_cases import Sizes
from oracles.brute_force import Answer, Restriction, Space, plan_count, solve
from published.planning import RULE, Comparison, compare
from toys.technique_spaces import small_space, with_host

from shardwright.planner.techniques import SHIPPED

STATES, ACTIVATIONS = "cpu_offload", "activation_swap"
WORDS = {
    STATES: (("none", "optimizer"), ("none", "optimizer", "all")),
    ACTIVATIONS: (
        ("none", "swap:0", "swap:0.25", "swap:0.5", "swap:0.75", "swap"),
        ("none", "swap:0", "swap:0.25", "swap:0.5", "swap"),
    ),
}
"""Choices of a space's words, by technique."""
CLUSTERS = ("1x2xA100-80GB", "1x2xH100", "1x4xA100-80GB", "2x1xH100")
LEAST_PLANS, MOST_PLANS = 200, 3000
HOST_BYTES = 10**10
"""Room for everything, so that the brute force sees all plans."""


def tier_space(seed: int, most: int = MOST_PLANS, name: str = STATES) -> tuple[Space, Answer]:
    """A space of a technique with ample memory of hosts, in which it matters, and its plans."""
    for attempt in range(100):
        source = random.Random(f"tiers {seed} {attempt}")
        space = _drawn(source, name)
        if LEAST_PLANS <= plan_count(space, most) <= most:
            answer = solve(space, check_every=97)
            if _device_caps(answer):
                return space, answer
    raise AssertionError(f"no space of seed {seed}")


def _drawn(source: random.Random, name: str) -> Space:
    blocks = source.choice([2, 3])
    pipelines = source.choice([(1,), (1, 2), (2,)])
    recomputes = source.choice([("none",), ("none", "full")]) if blocks == 2 else ("none",)
    restrictions = (
        Restriction(axis="recompute", allowed=recomputes),
        Restriction(axis="cp", allowed=(1,)),
        Restriction(axis="tp", allowed=(1,)),
        Restriction(axis="compile", allowed=("none",)),
        Restriction(axis="pp", allowed=pipelines),
        Restriction(axis="schedule", allowed=source.choice([("1f1b",), ("1f1b", "gpipe")])),
        Restriction(axis="shard", allowed=source.choice([("zero1",), ("zero3",), ("zero0",)])),
    )
    hidden = source.choice([128, 256])
    sizes = Sizes(blocks=blocks, hidden=hidden, ffn=hidden * source.choice([1, 2, 4]), vocab=512)
    words = source.choice(WORDS[name])
    cluster, dtype = source.choice(CLUSTERS), source.choice(["fp32", "bf16"])
    space = small_space(
        SHIPPED, name, words, *restrictions, cluster=cluster, sizes=sizes, dtype=dtype
    )
    workload = replace(space.workload, global_batch=source.choice([4, 8]))
    return with_host(replace(space, workload=workload), HOST_BYTES)


def compare_tiers(seed: int, most: int = MOST_PLANS, name: str = STATES) -> Comparison:
    """Hold the planner against the brute force where devices, and perhaps hosts, are short.

    With even seeds hosts hold less than the fastest plan that fits the devices puts there.
    """
    space, answer = tier_space(seed, most, name)
    source = random.Random(f"tier caps {seed}")
    capacity = int(source.choice(_device_caps(answer)) * RULE.margin) + 1
    fitting = [p for p in answer.plans if p.reserved_bytes * RULE.margin <= capacity]
    fastest = min(fitting, key=lambda p: (p.step_time_s, p.host_bytes))
    host_bytes = int(fastest.host_bytes * RULE.margin) + 1
    if seed % 2 == 0:
        less = sorted({p.host_bytes for p in fitting if p.host_bytes < fastest.host_bytes})
        host_bytes = int(source.choice(less) * RULE.margin) + 1
    return compare(seed, with_host(space, host_bytes), answer, capacity)


def _device_caps(answer: Answer) -> list[int]:
    """Bytes of devices at which the fastest plan that fits has more than the least on hosts."""
    caps = []
    for need in sorted({p.reserved_bytes for p in answer.plans}):
        fitting = [p for p in answer.plans if p.reserved_bytes <= need]
        fastest = min(fitting, key=lambda p: (p.step_time_s, p.host_bytes))
        slower = [p for p in fitting if p.step_time_s > fastest.step_time_s]
        if fastest.host_bytes > min((p.host_bytes for p in slower), default=math.inf):
            caps.append(need)
    return caps
