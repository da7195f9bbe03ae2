"""The planner against the brute force where hosts hold too little of what devices lack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.shapes import PLANNING, Evidence, Item, Row, judged
from harness.work import Work
from published.planning import Comparison
from toys.tier_spaces import ACTIVATIONS, LEAST_PLANS, STATES, compare_tiers

SPACES, BLOCK = {STATES: 80, ACTIVATIONS: 40}, 1000
BINDING = 0.5
"""Share of the spaces in which the hosts' bytes bind: those of even seeds."""


def run(work: Work) -> Evidence:
    """Solve every space by brute force and by the planner."""
    work.spreads = True
    return Evidence(rows=[row for name in SPACES for row in _judged(work, name)])


def _judged(work: Work, name: str) -> list[Row]:
    first = work.first_seed(BLOCK)
    keys = [f"{name} {first + number}" for number in range(work.sized(SPACES[name], 4))]
    comparisons = [Comparison(**_finite(piece)) for piece in work.pieces(keys, _compare)]
    faulty = {c.seed: c.faults for c in comparisons if c.faults}
    names = "; ".join(f"{seed}: {faults[0]}" for seed, faults in list(faulty.items())[:5])
    spaces, binding = len(comparisons), sum(c.host_binds for c in comparisons)
    sizes = sorted(c.plans for c in comparisons)
    return [
        judged(
            f"{name}: spaces with memory of hosts where planner and brute force agree",
            f"{spaces - len(faulty)} of {spaces}" + (f" ({names})" if faulty else ""),
            f"all {spaces}",
            not faulty,
            spaces=spaces,
            agreeing=spaces - len(faulty),
        ),
        judged(
            f"{name}: spaces in which the hosts' bytes bind",
            f"{binding} of {spaces}, of {sizes[0]:,} to {sizes[-1]:,} legal plans",
            f"at least half, each of {LEAST_PLANS} plans or more",
            binding >= BINDING * spaces and sizes[0] >= LEAST_PLANS,
            binding=binding,
            least=sizes[0],
            most=sizes[-1],
        ),
    ]


def _compare(key: str) -> dict[str, Any]:
    name, seed = key.split()
    comparison = asdict(compare_tiers(int(seed), name=name))
    return {k: (str(v) if v == float("inf") else v) for k, v in comparison.items()}


def _finite(piece: dict[str, Any]) -> dict[str, Any]:
    return {k: (float("inf") if v == "inf" else v) for k, v in piece.items()}


ITEM = Item(
    name="tiers",
    shows="Where hosts hold too little of what devices lack, no plan is faster than the answer.",
    target=(
        "Equal to 1e-9, gap 0, on 80 spaces of states and 40 of activations, each of 200 plans or "
        "more; the hosts bind in half."
    ),
    run=run,
    reads=(*PLANNING, "tests/support/oracles/brute_force.py",
           "tests/support/toys/technique_spaces.py", "tests/support/toys/tier_spaces.py"),
)  # fmt: skip
