"""The planner against the independent brute force, on random spaces."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from harness.shapes import PLANNING, Evidence, Item, Row, judged, reported
from harness.work import Work
from planning import EQUAL, Comparison, compare_seed

SPACES = 300
LEAST_PLANS = 500


def run(work: Work) -> Evidence:
    """Solve every space by brute force and ask the planner the same."""
    seeds = [str(seed) for seed in range(work.sized(SPACES, 12))]
    found = [Comparison(**_finite(piece)) for piece in work.pieces(seeds, _compare)]
    spaces, faulty = len(found), [c for c in found if c.faults]
    feasible = [c for c in found if c.feasible]
    sizes = sorted(c.plans for c in found)
    worst = max((abs(c.planned_s / c.best_s - 1) for c in feasible), default=0.0)
    gap = max((c.planned_s / c.lower_bound_s - 1 for c in feasible), default=0.0)
    names = "; ".join(f"seed {c.seed}: {c.faults[0]}" for c in faulty[:5])
    return Evidence(
        rows=[
            judged(
                "spaces where planner and oracle agree",
                f"{spaces - len(faulty)} of {spaces}" + (f" ({names})" if faulty else ""),
                f"all {SPACES}",
                not faulty,
                spaces=spaces,
                agreeing=spaces - len(faulty),
            ),
            judged(
                "largest difference of simulated time",
                f"{worst:.1e} relative",
                f"at most {EQUAL:g}",
                worst <= EQUAL,
                largest_relative_difference=worst,
            ),
            judged("largest gap", f"{gap:.1e}", f"0 (to {EQUAL:g})", gap <= EQUAL, largest_gap=gap),
            judged(
                "legal plans of a space",
                f"{sizes[0]} to {sizes[-1]}, median {sizes[spaces // 2]}, {sum(sizes)} in all",
                f"at least {LEAST_PLANS}",
                sizes[0] >= LEAST_PLANS,
                least=sizes[0],
                median=sizes[spaces // 2],
                most=sizes[-1],
                total=sum(sizes),
            ),
            *_spaces(found, feasible),
        ]
    )


def _spaces(found: list[Comparison], feasible: list[Comparison]) -> list[Row]:
    """What sort of spaces these were."""
    spaces = len(found)
    binds = sum(c.memory_binds for c in found)
    loses = sum(c.uniform_loses for c in feasible)
    simulated = sum(c.simulated for c in feasible) / sum(c.plans for c in feasible)
    return [
        reported(
            "memory binds (the fastest plan does not fit)",
            f"{binds} of {spaces} spaces ({binds / spaces:.0%})",
            spaces=binds,
        ),
        reported(
            "no uniform plan is as fast as the best",
            f"{loses} of {len(feasible)} spaces with a plan that fits "
            f"({loses / len(feasible):.0%})",
            spaces=loses,
        ),
        reported(
            "spaces with experts, and with several towers",
            f"{sum(c.experts for c in found)} and {sum(c.towers for c in found)}",
            experts=sum(c.experts for c in found),
            towers=sum(c.towers for c in found),
        ),
        reported(
            "plans that the planner simulated, of all that are legal",
            f"{simulated:.1%}",
            share=simulated,
        ),
    ]


def _compare(seed: str) -> dict[str, Any]:
    return {k: (str(v) if v == float("inf") else v) for k, v in asdict(_one(seed)).items()}


def _one(seed: str) -> Comparison:
    return compare_seed(int(seed))


def _finite(piece: dict[str, Any]) -> dict[str, Any]:
    return {k: (float("inf") if v == "inf" else v) for k, v in piece.items()}


ITEM = Item(
    name="oracle",
    shows="The planner finds what an independent brute force over all legal plans finds.",
    target=(
        "equal simulated time to 1e-9 and gap 0 on 300 random spaces of at least 500 legal plans."
    ),
    run=run,
    reads=(*PLANNING, "tests/support/oracle.py", "tests/support/random_spaces.py",
           "tests/support/planning.py"),
)  # fmt: skip
