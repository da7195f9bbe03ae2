"""Predicted against tracked peak memory, which needs no quiet machine."""

from __future__ import annotations

import statistics
from typing import Any

from harness.shapes import EVERYTHING, Evidence, Item, judged, reported
from harness.work import Work
from items.executor.accuracy import (
    CASES,
    PEAK_LIMIT,
    PLANS,
    SEED,
    Pools,
    case_name,
    peaks,
    problem_of,
)
from support.plan_sample import predicted_plans

DRAWN = 6
"""Plans of each case in the short form, beside the top pick."""


def run(work: Work) -> Evidence:
    """Predict and run the plans of every two-rank case of ``accuracy``."""
    cases = {case_name(case): case for case in CASES}
    names = list(cases)[: work.sized(len(cases), 1)]
    seed, count = work.seed or SEED, work.sized(DRAWN, 3, PLANS)

    def one(name: str) -> dict[str, Any]:
        problem = problem_of(*cases[name])
        plans = predicted_plans(problem, count, seed)
        with Pools() as pools:
            return {"plans": [peaks(pools, plan, problem.stack.attention) for plan in plans]}

    pieces = dict(zip(names, work.pieces(names, one), strict=True))
    plans = [plan for piece in pieces.values() for plan in piece["plans"]]
    errors = [plan["peak_error"] for plan in plans]
    growth = [max(plan["rss_growth_bytes"]) / max(plan["allocated_bytes"]) for plan in plans]
    rows = [
        judged(
            "tracked peak of a stage, worst error",
            f"{max(errors):.2%} of {len(plans)} plans, median {statistics.median(errors):.3%}",
            f"at most {PEAK_LIMIT:.0%}",
            max(errors) <= PEAK_LIMIT,
            largest=max(errors),
            plans=len(plans),
        ),
        reported(
            "growth of resident memory over the tracked peak",
            f"median {statistics.median(growth):.2f}, largest {max(growth):.2f}",
            median=statistics.median(growth),
        ),
    ]
    for name, piece in pieces.items():
        worst = max(plan["peak_error"] for plan in piece["plans"])
        rows.append(reported(name, f"within {worst:.3%} of {len(piece['plans'])} plans"))
    return Evidence(rows=rows)


ITEM = Item(
    name="tracked_peak",
    shows="Predicted peak memory is the tracked peak of live tensors of a run.",
    target="within 2 % for the top pick and 6 plans of each of six cases on 2 ranks.",
    full_target="within 2 % for the top pick and 12 plans of each of six cases on 2 ranks.",
    run=run,
    reads=(
        *EVERYTHING,
        "benchmarks/items/executor/accuracy.py",
        "benchmarks/support/plan_sample.py",
    ),
)
