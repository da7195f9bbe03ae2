"""A sweep that is done in pieces answers what one that is done at once does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.library_entries import EnteredJobs
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.ids import new_id
from shardwright.api.server.jobs.new_jobs import NewJob, Quota
from shardwright.api.server.jobs.schema import CACHE
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns
from shardwright.api.server.jobs.workers import attempt
from shardwright.api.server.jobs.workers.attempt import JobRunner

VALUES = [2, 4, 8, 16, 32, 64]
SWEEP = {"plan": {"a": 1}, "sweep": {"nodes": VALUES}}


class KilledError(BaseException):
    """The end of a worker in the midst of its work."""


class Child:
    """A child that answers at once; told to, its worker is killed instead."""

    asked: list[int]
    deadly: set[int]

    def start(self) -> None:
        """Nothing has to start."""

    def run(self, kind: str, body: bytes, *rest: object) -> tuple[int, bytes, bool]:
        question: dict[str, Any] = json.loads(body)
        [(path, [value])] = question["sweep"].items()
        if value in Child.deadly:
            Child.deadly.remove(value)
            raise KilledError
        Child.asked.append(value)
        found = {"search": {"stopped_by": "proof"}, "plan": {"nodes": value}}
        row = {"value": value, "same_plan": {"seconds": 1 / value}, "re_planned": found}
        answer = {
            "plan_hash": "sha256:0", "baseline": {"seconds": 1.0}, "scale": "fixed",
            "provenance": {}, "assumptions": ["all", f"of {value // 8}"], "sweep": {"path": path},
            "rows": [row],
        }  # fmt: skip
        return 200, json.dumps(answer).encode(), False


@pytest.fixture
def queue() -> EnteredJobs:
    return EnteredJobs()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    queue: EnteredJobs,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[JobStore]:
    monkeypatch.setattr(attempt, "SearchChild", Child)
    Child.asked, Child.deadly = [], set()
    with database(request.param, tmp_path) as url:
        prepare(url)
        engine = open_engine(url)
        yield JobStore(engine, Turns(queue, window=1))
        engine.dispose()


def _add(store: JobStore, owner: str, body: object) -> str:
    kind = "what-if" if "sweep" in json.dumps(body) else "plan"
    job = NewJob(
        id=new_id(), owner=owner, kind=kind, body=json.dumps(body), fingerprint="f",
        deadline_s=86_400.0,
    )  # fmt: skip
    store.add([job], Quota(100))
    return job.id


def _answer(store: JobStore, job_id: str) -> str:
    row = store.get("ann", "what-if", job_id)
    assert row is not None
    assert (row.outcome, row.status) == ("done", 200)
    return str(row.answer)


def _at_once(store: JobStore) -> str:
    """The answer of a sweep that nobody waits for; what it knows is forgotten."""
    job_id = _add(store, "ann", SWEEP)
    JobRunner(store).run(job_id)
    assert Child.asked == VALUES
    Child.asked.clear()
    with store.engine.begin() as connection:
        connection.execute(sa.delete(CACHE))
    return _answer(store, job_id)


def _numbers(store: JobStore, job_id: str) -> list[int]:
    """Rows by the events of a job's stream, in their order."""
    events = [json.loads(row.value) for row in store.events([(job_id, 0)], 1000)]
    return [each["data"]["number"] for each in events if each["event"] == "row"]


def test_pieces_make_the_answer_of_one_piece_to_the_byte(
    store: JobStore, queue: EnteredJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _at_once(store)
    monkeypatch.setattr(attempt, "SLICE_S", 0.0)
    sweep, other = _add(store, "ann", SWEEP), _add(store, "ben", {})
    last = len(VALUES) - 1
    for piece in range(last):
        JobRunner(store).run(sweep, piece)  # a new one each time: nothing is kept in memory
    came = [(sweep, 0), (other, 0), *((sweep, piece) for piece in range(1, last + 1))]
    assert queue[1:] == came  # behind the other's job
    assert len(store.pieces(sweep)) == last
    store.finish(other, "done", 200, "{}")
    JobRunner(store).run(sweep, last)
    assert _answer(store, sweep) == expected
    assert Child.asked == VALUES
    assert _numbers(store, sweep) == [*range(len(VALUES))]
    assert store.pieces(sweep) == []


def test_a_piece_goes_on_where_nobody_waits(store: JobStore, queue: EnteredJobs) -> None:
    expected = _at_once(store)
    sweep = _add(store, "ann", SWEEP)
    other = _add(store, "ben", {})
    assert store.begin(other) is not None  # another worker does it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "SLICE_S", 0.0)
        JobRunner(store).run(sweep)
    assert _answer(store, sweep) == expected
    assert [piece for job_id, piece in queue if job_id == sweep] == [0]


def test_kills_between_and_in_pieces_lose_nothing(
    store: JobStore, queue: EnteredJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _at_once(store)
    monkeypatch.setattr(attempt, "SLICE_S", 0.0)
    sweep, _ = _add(store, "ann", SWEEP), _add(store, "ben", {})
    Child.deadly = {4, 32}
    kills = 0
    for piece in range(len(VALUES)):
        while True:
            try:
                JobRunner(store).run(sweep, piece)
                break
            except KilledError:
                kills += 1
        JobRunner(store).run(sweep, piece)  # a holder of its slot that comes late changes nothing
    assert kills == 2
    assert _answer(store, sweep) == expected
    assert Child.asked == VALUES
    row = store.get("ann", "what-if", sweep)
    assert row is not None
    assert row.attempt == 1 + kills
    assert [piece for job_id, piece in queue if job_id == sweep] == [*range(len(VALUES))]
