"""A process that searches again and again keeps nothing of the searches that are over."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
from service.request_bodies import PLAN

import shardwright as sw
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.server.compute.progress_events import SearchProgress
from shardwright.planner.search.branch_and_bound import BranchAndBound


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[BranchAndBound]]:
    """Every search from now on."""
    found: list[weakref.ref[BranchAndBound]] = []
    begin = BranchAndBound.__init__

    def init(self: BranchAndBound, **parts: Any) -> None:
        found.append(weakref.ref(self))
        begin(self, **parts)

    monkeypatch.setattr(BranchAndBound, "__init__", init)
    return found


def test_a_search_is_gone_with_its_answer(made: list[weakref.ref[BranchAndBound]]) -> None:
    pins = PLAN["constraints"]["pins"]
    sw.plan(PLAN["model"], PLAN["cluster"], **PLAN["workload"], pins=pins)
    assert {search() for search in made} == {None}


def test_so_is_one_that_somebody_watched(made: list[weakref.ref[BranchAndBound]]) -> None:
    told: list[str] = []
    status, _ = run_operation(
        "plan", json.dumps(PLAN).encode(), 60.0, lambda name, _: told.append(name)
    )
    assert status == 200
    assert "best" in told  # and progress once more, where the search went on for a while
    assert {search() for search in made} == {None}


def test_watching_keeps_nothing_alive() -> None:
    class Seen:
        """Of a search what is looked at."""

        best_value = float("inf")

        class evaluator:  # noqa: N801
            count = 3

    watching, seen = SearchProgress(lambda name, text: None, reports_best=True), Seen()
    watching(seen)  # type: ignore[arg-type]
    kept = weakref.ref(seen)
    del seen
    assert kept() is None
