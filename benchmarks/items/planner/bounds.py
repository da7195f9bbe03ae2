"""Every bound of the search, against the plans that it covers."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from generators.open_problems import open_problem
from generators.samples import random_problem
from harness.shapes import PLANNING, Evidence, Item, Table, judged, reported
from harness.work import Work
from oracles.bound_checks import ROUNDING
from oracles.heterogeneous_bounds import check_mixed_question, random_mixed_problem
from oracles.question_bounds import Questioned, check_question

PROBLEMS, FULL_PROBLEMS, PLANS = 126, 600, 220
MIXED, FULL_MIXED, MIXED_PLANS = 26, 120, 150
LEAST_PLANS, FULL_LEAST_PLANS = 20_000, 100_000
BLOCK = 1000
"""Seeds that a commit may draw."""


def run(work: Work) -> Evidence:
    """Random plans of random questions, half with axes normally ruled out."""
    work.spreads = True
    first = work.first_seed(BLOCK)
    keys = [f"one {first + n}" for n in range(work.sized(PROBLEMS, 6, FULL_PROBLEMS))]
    keys += [f"mixed {first + n}" for n in range(work.sized(MIXED, 3, FULL_MIXED))]
    least = work.sized(LEAST_PLANS, 1, FULL_LEAST_PLANS)
    pieces = work.pieces(keys, _check)
    plans = sum(piece["plans"] for piece in pieces)
    fitting = sum(piece["fitting"] for piece in pieces)
    faults = [f"{key}: {f}" for key, p in zip(keys, pieces, strict=True) for f in p["faults"]]
    proven = sum(piece["stopped_by"] == "proof" for piece in pieces)
    axes: Counter[str] = Counter()
    for piece in pieces:
        axes.update(piece["axes"])
    rows = [
        judged(
            "bounds above a plan that they speak for",
            f"{len(faults)} ({plans:,} plans drawn)" + (f" ({faults[0][:300]})" if faults else ""),
            f"0 (to {ROUNDING:g})",
            not faults,
            plans=plans,
            faults=len(faults),
        ),
        judged(
            "legal plans that fit, held against `lower_bound_s` of their question",
            f"{fitting:,} of {len(pieces)} questions, {proven} of them proven",
            f"at least {least:,}",
            fitting >= least,
            plans=fitting,
            questions=len(pieces),
            proven=proven,
        ),
    ]
    for name in sorted({name for piece in pieces for name in piece["largest"]}):
        bounded = [piece for piece in pieces if name in piece["largest"]]
        largest = max(piece["largest"][name] for piece in bounded)
        counted = "fitting" if "lower_bound_s" in name else "plans"
        mean = sum(p["total"][name] for p in bounded) / sum(p[counted] for p in bounded)
        rows.append(
            reported(
                f"bound `{name}` as a share of the step",
                f"mean {mean:.3f}, largest {largest:.6f}",
                mean=mean,
                largest=largest,
            )
        )
    lines = [(name, f"{count:,}", f"{count / plans:.1%}") for name, count in axes.most_common()]
    table = Table(title="Plans with each axis", columns=("axis", "plans", "share"), rows=lines)
    return Evidence(rows=rows, tables=[table])


def _check(key: str) -> dict[str, Any]:
    checks = checked(key)
    return {
        "plans": checks.tightness.plans,
        "fitting": checks.fitting,
        "stopped_by": checks.stopped_by,
        "faults": checks.tightness.faults,
        "largest": checks.tightness.largest,
        "total": checks.tightness.total,
        "axes": dict(checks.axes),
    }


def checked(key: str) -> Questioned:
    """The question of a key, with its plans held against every bound."""
    kind, _, number = key.partition(" ")
    seed = int(number)
    if kind == "mixed":
        return check_mixed_question(random_mixed_problem(seed), MIXED_PLANS, seed)
    space = open_problem(seed) if seed % 2 else random_problem(seed)
    return check_question(space, PLANS, seed)


ITEM = Item(
    name="bounds",
    shows="No bound of the search is above a plan that it speaks for, or it would prove nothing.",
    target=(
        "none in 20,000 random legal plans of every axis, and none of them below `lower_bound_s` "
        "of a question that it answers."
    ),
    full_target=(
        "none in 100,000 random legal plans of every axis, and none of them below "
        "`lower_bound_s` of a question that it answers."
    ),
    run=run,
    reads=(*PLANNING, "tests/support/oracles/brute_force.py",
    "tests/support/oracles/heterogeneous_oracle.py",
           "tests/support/generators/random_spaces.py", "tests/support/generators/tower_cases.py",
           "tests/support/generators/random_plans.py",
           "tests/support/generators/random_heterogeneous_plans.py",
           "tests/support/published/planning.py", "tests/support/generators/samples.py",
           "tests/support/generators/open_problems.py", "tests/support/generators/plan_axes.py",
           "tests/support/oracles/bound_checks.py", "tests/support/oracles/question_bounds.py",
           "tests/support/oracles/heterogeneous_bounds.py"),
)  # fmt: skip
