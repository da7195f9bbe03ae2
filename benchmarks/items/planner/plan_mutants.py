"""Broken plan documents: refused in one line, or legal and simulated."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small arrays: threads only take each other's time

from checks.plan_checks import run_mutants
from harness.shapes import PRICING, Evidence, Item, judged, reported
from harness.work import Work

MUTANTS = 20_000
TOGETHER = 200


def run(work: Work) -> Evidence:
    """Change one thing in a valid plan, many times over."""
    start = work.first_seed(MUTANTS)
    firsts = [str(start + n) for n in range(0, work.sized(MUTANTS, TOGETHER), TOGETHER)]
    pieces = work.pieces(firsts, _some)
    verdicts = sum((Counter(piece["verdicts"]) for piece in pieces), Counter[str]())
    faults = [piece["fault"] for piece in pieces if piece["fault"]]
    handled = sum(verdicts.values())
    rows = [
        judged(
            "documents that were neither refused in one line nor legal",
            f"{len(faults)}" + (f" ({faults[0]})" if faults else ""),
            f"0 of {MUTANTS}",
            not faults,
            faults=len(faults),
        )
    ]
    rows += [
        reported(name, f"{count} ({count / handled:.1%})", count=count)
        for name, count in verdicts.most_common()
    ]
    return Evidence(rows=rows)


def _some(first: str) -> dict[str, Any]:
    try:
        return {"verdicts": run_mutants(TOGETHER, int(first)), "fault": None}
    except AssertionError as error:
        return {"verdicts": {}, "fault": str(error)[:500]}


ITEM = Item(
    name="plan_mutants",
    shows="A plan document with one thing changed is refused in one line, or legal and simulated.",
    target="no other end in 20,000 changes.",
    run=run,
    reads=(*PRICING, "tests/support/runner/mutants.py", "tests/support/checks/plan_checks.py",
           "tests/support/generators/samples.py", "tests/support/generators/random_plans.py",
           "tests/support/generators/random_spaces.py", "tests/support/oracles/brute_force.py"),
)  # fmt: skip
