"""More memory, host memory, devices or bandwidth never make the best plan worse."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from harness.shapes import PLANNING, Evidence, Item, Row, judged, reported
from harness.work import Work
from support.growing import STEPS, WHATS, chain

PAIRS, FULL_PAIRS = 500, 10_000
BLOCK = 128
"""Chains that a commit may draw; every sort and all that grows come in each 64."""
EQUAL = 1e-9
WORSE = {"memory": EQUAL, "devices": EQUAL, "host": 1e-3, "bandwidth": 1e-3}
"""Excess that counts as worse: with other resources a plan keeps its price but for rounding, with
faster links and offloading prices change, and a search may end at its limits.
"""
SORTS = ("small", "large", "mixed")
AT_A_GLANCE = (0, 1, 2, 3, 56, 57, 62, 63)


def run(work: Work) -> Evidence:
    """Plan for every question of the chains."""
    work.spreads = True
    pairs = work.sized(PAIRS, STEPS * len(AT_A_GLANCE), FULL_PAIRS)
    first = work.first_seed(BLOCK)
    numbers = AT_A_GLANCE if work.quick else range(first, first - (-pairs // STEPS))
    return _evidence(counted(work.pieces([str(number) for number in numbers], _chain)), pairs)


def _chain(number: str) -> dict[str, Any]:
    return chain(int(number))


def pairs_of(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pairs of a chain: every question with the next larger one."""
    for step, (less, more) in enumerate(pairwise(one["answers"])):
        yield {
            "name": f"chain {one['number']} step {step}",
            "what": one["what"],
            "sort": one["sort"],
            "less_s": less["step_s"],
            "more_s": more["step_s"],
            "proven": less["proven"] and more["proven"],
            "idle": more["used"] < more["devices"],
        }


def counted(chains: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of pairs, and the pairs that are worse with more."""
    pairs = [pair for one in chains for pair in pairs_of(one)]
    both = [p for p in pairs if p["less_s"] is not None and p["more_s"] is not None]
    return {
        **{what: sum(p["what"] == what for p in pairs) for what in WHATS},
        **{sort: sum(p["sort"] == sort for p in pairs) for sort in SORTS},
        "both": len(both),
        "better": sum(p["more_s"] < p["less_s"] * (1 - EQUAL) for p in both),
        "opened": sum(p["less_s"] is None and p["more_s"] is not None for p in pairs),
        "unproven": sum(not p["proven"] for p in both),
        "idle": sum(p["idle"] for p in both if p["what"] == "devices"),
        "worse": [p for p in pairs if is_worse(p)],
    }


def is_worse(p: dict[str, Any]) -> bool:
    """True if a pair has a slower plan, or none, with more."""
    if p["less_s"] is None:
        return False
    return p["more_s"] is None or p["more_s"] > p["less_s"] * (1 + WORSE[p["what"]])


def _evidence(counts: dict[str, Any], least: int) -> Evidence:
    worse = counts["worse"]
    pairs = sum(counts[what] for what in WHATS)
    rows = [
        judged(
            "pairs that were planned for",
            f"{pairs:,}: " + ", ".join(f"{counts[what]:,} with more {what}" for what in WHATS),
            f"at least {least:,}",
            pairs >= least,
            pairs=pairs,
        ),
        *(_verdict(worse, what, counts[what]) for what in WHATS),
        reported(
            "pairs where more is strictly faster",
            f"{counts['better']:,} of {counts['both']:,} where both have a plan; "
            f"{counts['opened']:,} more have a plan only with more",
            better=counts["better"],
            both=counts["both"],
            opened=counts["opened"],
        ),
        reported(
            "pairs of spaces too large to be proven in full",
            f"{counts['large']:,}; not proven: {counts['unproven']:,} of {counts['both']:,}",
            large=counts["large"],
            unproven=counts["unproven"],
        ),
        reported("pairs over two device groups", f"{counts['mixed']:,}", mixed=counts["mixed"]),
        reported(
            "pairs with more devices whose best plan leaves some idle",
            f"{counts['idle']:,}",
            idle=counts["idle"],
        ),
    ]
    return Evidence(rows=rows)


def _verdict(worse: Sequence[dict[str, Any]], what: str, pairs: int) -> Row:
    losses = [p for p in worse if p["what"] == what]
    names = "; ".join(
        f"{p['name']} ({p['sort']}): {p['less_s']:.6g} s, then "
        + ("no plan" if p["more_s"] is None else f"{p['more_s']:.6g} s")
        for p in losses[:5]
    )
    return judged(
        f"pairs where more {what} is worse",
        f"{len(losses)} of {pairs:,}" + (f" ({names})" if losses else ""),
        "0",
        not losses,
        worse=len(losses),
        pairs=pairs,
        largest_loss=max((_loss(p) for p in losses), default=0.0),
    )


def _loss(p: dict[str, Any]) -> float:
    """Relative slowdown; a plan that is lost counts as 1."""
    return 1.0 if p["more_s"] is None else float(p["more_s"] / p["less_s"] - 1)


ITEM = Item(
    name="monotone",
    shows="More memory, host memory, devices or bandwidth never make the best plan worse.",
    target="0 of 500 random pairs (a quarter each) is worse: memory and devices by more than 1e-9, "
    "host memory and bandwidth by more than 0.1 %.",
    full_target="The same of 10,000 random pairs.",
    run=run,
    reads=(*PLANNING, "benchmarks/support/growing.py", "tests/support/oracles/brute_force.py",
           "tests/support/generators/growth.py",
           "tests/support/oracles/heterogeneous_oracle.py",
           "tests/support/generators/random_spaces.py",
           "tests/support/generators/random_plans.py",
           "tests/support/generators/random_heterogeneous_plans.py",
           "tests/support/oracles/heterogeneous_bounds.py", "tests/support/published/planning.py",
           "tests/support/generators/tower_cases.py", "tests/support/generators/samples.py"),
)  # fmt: skip
