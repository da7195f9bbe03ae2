"""Every bound that the search uses, against the plans that it speaks for."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from bound_checks import ROUNDING, check_bounds
from harness.shapes import PLANNING, Evidence, Item, judged, reported
from harness.work import Work
from samples import random_problem

PROBLEMS = 400
PLANS = 25


def run(work: Work) -> Evidence:
    """Random plans of random problems, on devices that hold just what each needs."""
    seeds = [str(seed) for seed in range(work.sized(PROBLEMS, 10))]
    found = work.pieces(seeds, _check)
    plans = sum(piece["plans"] for piece in found)
    faults = [fault for piece in found for fault in piece["faults"]]
    rows = [
        judged(
            "bounds above a plan that they speak for",
            f"{len(faults)}" + (f" ({faults[0]})" if faults else ""),
            f"0 (to {ROUNDING:g}) in {PROBLEMS * PLANS} plans",
            not faults,
            plans=plans,
            faults=len(faults),
        )
    ]
    for name in sorted({name for piece in found for name in piece["largest"]}):
        largest = max(piece["largest"].get(name, 0.0) for piece in found)
        mean = sum(piece["total"].get(name, 0.0) for piece in found) / plans
        rows.append(
            reported(
                f"bound `{name}` as a share of the step",
                f"mean {mean:.3f}, largest {largest:.6f}",
                mean=mean,
                largest=largest,
            )
        )
    return Evidence(rows=rows)


def _check(seed: str) -> dict[str, Any]:
    found = check_bounds(random_problem(int(seed)), PLANS, int(seed))
    return {
        "plans": found.plans,
        "faults": found.faults,
        "largest": found.largest,
        "total": found.total,
    }


ITEM = Item(
    name="bounds",
    shows="No bound of the search is above a plan that it speaks for, or it would prove nothing.",
    target="none in 10,000 random plans, on devices that hold just what each needs.",
    run=run,
    reads=(*PLANNING, "tests/support/oracle.py", "tests/support/random_spaces.py",
           "tests/support/random_plans.py", "tests/support/planning.py",
           "tests/support/samples.py", "tests/support/bound_checks.py"),
)  # fmt: skip
