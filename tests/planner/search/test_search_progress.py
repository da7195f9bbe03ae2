"""A search that is watched: the same answer, and at every moment a legal plan with a sound gap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.server.compute.progress_events import SearchProgress
from shardwright.planner.search.branch_and_bound import BranchAndBound
from shardwright.planner.search.build import single_group_search
from shardwright.planner.search.result import IntermediateResult
from shardwright.planner.search.work_limits import Limits
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve
from shardwright.spec.codec import parse_json

ASKED = Inputs(model="gpt2", cluster="8xH100", global_batch=64, seq_len=1024, calibration="none")


def test_every_glimpse_is_legal_and_sound() -> None:
    glimpses: list[IntermediateResult] = []

    def look(search: BranchAndBound) -> None:
        if (found := search.current_result()) is not None:
            glimpses.append(found)

    problem = resolve(ASKED)
    found = single_group_search(make_evaluator(problem), Limits(), watch=look).run()
    alone = single_group_search(make_evaluator(problem), Limits()).run()
    assert [o.decision for o in found.outcomes] == [o.decision for o in alone.outcomes]
    assert (found.lower_bound, found.simulated) == (alone.lower_bound, alone.simulated)
    best = found.outcomes[0].step_time_s
    assert len({glimpse.value for glimpse in glimpses}) > 1
    for before, glimpse in zip([glimpses[0], *glimpses], glimpses, strict=False):
        assert glimpse.outcome.feasible
        glimpse.outcome.plan.check()
        assert glimpse.value <= before.value
        assert glimpse.lower_bound <= best * (1 + 1e-12)
        assert glimpse.gap >= 0


@pytest.mark.parametrize(
    ("changes", "tells_best"),
    [({}, True), ({"cluster": "4xH100+4xA100"}, False), ({"objective": "largest-batch:8"}, False)],
)
def test_best_plans_are_told_where_they_would_be_the_answer(
    changes: dict[str, Any], tells_best: bool
) -> None:
    told: list[tuple[str, Any]] = []
    if "objective" in changes:
        changes = {**changes, "global_batch": None}
    problem = resolve(replace(ASKED, **changes))
    reporter = SearchProgress(
        lambda name, body: told.append((name, parse_json(body, "event"))), problem.is_single_search
    )
    options = SolveOptions(deadline_s=3, progress=reporter.progress, watch=reporter)
    solution = solve(problem, options)
    names = [name for name, _ in told]
    assert ("best" in names) == tells_best
    assert "progress" in names
    counts = [data["candidates"] for _, data in told]
    assert counts == sorted(counts)
    for name, data in told:
        if name == "best":
            assert data["lower_bound_s"] <= solution.prediction.step_time_s * (1 + 1e-12)
            assert data["plan"]["cluster"] == solution.plan.to_document()["cluster"]
