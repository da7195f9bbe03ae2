"""More memory, or more devices that may stay idle, never makes the best plan worse."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from harness.shapes import PLANNING, Evidence, Item, Row, judged, reported
from harness.work import Work
from oracle import Space, simulator_of
from planning import RULE, planned
from random_plans import Drawer
from random_spaces import random_space
from samples import random_problem

from shardwright.planner.search import Found
from shardwright.spec.cluster import ClusterSpec

PAIRS = 2000
EQUAL = 1e-9
MOST_PLANS = 1500
LARGE_EVERY = 8
"""One pair in so many is of a space too large to be proven in full."""
MOST_DEVICES = 8


def run(work: Work) -> Evidence:
    """Plan for both sides of every pair."""
    numbers = [str(number) for number in range(work.sized(PAIRS, 16))]
    found = work.pieces(numbers, lambda key: pair(int(key)))
    rows = [_verdict(found, what) for what in ("memory", "devices")]
    both = [p for p in found if p["less_s"] is not None and p["more_s"] is not None]
    better = sum(p["more_s"] < p["less_s"] * (1 - EQUAL) for p in both)
    opened = sum(p["less_s"] is None and p["more_s"] is not None for p in found)
    idle = sum(p["used_devices"] < p["devices"] for p in both if p["what"] == "devices")
    unproven = sum(not p["proven"] for p in both)
    return Evidence(
        rows=[
            *rows,
            reported(
                "pairs where more is strictly faster",
                f"{better} of {len(both)} where both have a plan; {opened} more have a plan only "
                "with more",
                better=better,
                both=len(both),
                opened=opened,
            ),
            reported(
                "pairs of spaces too large to be proven in full",
                f"{unproven} of {len(both)}",
                unproven=unproven,
            ),
            reported(
                "pairs with more devices whose best plan leaves some idle",
                f"{idle}",
                idle=idle,
            ),
        ]
    )


def _verdict(found: Sequence[dict[str, Any]], what: str) -> Row:
    own = [p for p in found if p["what"] == what]
    worse = [p for p in own if _is_worse(p)]
    names = "; ".join(
        f"pair {p['number']}: {p['less_s']:.6g} s, then "
        + ("no plan" if p["more_s"] is None else f"{p['more_s']:.6g} s")
        for p in worse[:5]
    )
    return judged(
        f"pairs where more {what} is worse",
        f"{len(worse)} of {len(own)}" + (f" ({names})" if worse else ""),
        f"0 of {PAIRS // 2}",
        not worse,
        worse=len(worse),
        pairs=len(own),
        largest_loss=max((_loss(p) for p in worse), default=0.0),
    )


def _is_worse(p: dict[str, Any]) -> bool:
    if p["less_s"] is None:
        return False
    return p["more_s"] is None or p["more_s"] > p["less_s"] * (1 + EQUAL)


def _loss(p: dict[str, Any]) -> float:
    """How much slower; a plan that is lost altogether counts as 1."""
    return 1.0 if p["more_s"] is None else float(p["more_s"] / p["less_s"] - 1)


def pair(number: int) -> dict[str, Any]:
    """One pair: even numbers get more memory, odd ones more devices."""
    source = random.Random(f"pair {number}")
    large = number // 2 % LARGE_EVERY == LARGE_EVERY - 1
    base = random_problem(number, MOST_DEVICES) if large else random_space(number, MOST_PLANS)
    need = need_bytes(base, source)
    less = base.with_memory(int(need * source.uniform(0.8, 1.1)))
    if number % 2 == 0:
        what, more = "memory", base.with_memory(_larger(less, source))
    else:
        what, more = "devices", replace(less, cluster=grown(less.cluster, source))
    one, other = planned(less), planned(more)
    return {
        "number": number,
        "what": what,
        "less_s": one and one.outcomes[0].step_time_s,
        "more_s": other and other.outcomes[0].step_time_s,
        "proven": all(f is None or f.stopped_by == "proof" for f in (one, other)),
        "devices": more.cluster.device_count,
        "used_devices": _used(other),
    }


def _used(found: Found | None) -> int:
    if found is None:
        return 0
    shape = found.outcomes[0].decision.shape
    return shape.stages * shape.ranks


def need_bytes(space: Space, source: random.Random) -> float:
    """What some random plan needs, so that capacities lie where plans differ."""
    plan = Drawer(space, source).draft().plan(space)
    simulation = simulator_of(space).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return max(row.reserved_bytes for row in simulation.memory) * RULE.margin


def _larger(space: Space, source: random.Random) -> int:
    """A capacity that is a little or a lot larger."""
    own = space.cluster.groups[0].memory.hbm_bytes
    return int(own * (1 + 10 ** source.uniform(-3, 0.5))) + 1


def grown(cluster: ClusterSpec, source: random.Random) -> ClusterSpec:
    """The cluster with one to four devices or nodes more, so that the old one is a part of it."""
    group, inner = cluster.groups[0], cluster.levels[0]
    if len(cluster.levels) > 1:
        extra = source.randint(1, 2)
        larger = replace(group, nodes=group.nodes + extra)
        outer = replace(cluster.levels[-1], group_size=larger.device_count)
        return replace(cluster, groups=(larger,), levels=(*cluster.levels[:-1], outer))
    count = group.devices_per_node + source.randint(1, 4)
    larger = replace(group, devices_per_node=count)
    return replace(cluster, groups=(larger,), levels=(replace(inner, group_size=count),))


ITEM = Item(
    name="monotone",
    shows="More memory or more devices never makes the best plan worse.",
    target="0 of 2,000 random pairs (half memory, half devices) is worse by more than 1e-9.",
    run=run,
    reads=(*PLANNING, "tests/support/oracle.py", "tests/support/random_spaces.py",
           "tests/support/random_plans.py", "tests/support/planning.py",
           "tests/support/samples.py"),
)  # fmt: skip
