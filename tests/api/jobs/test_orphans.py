"""Begun jobs that nobody works on are put back on the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.ids import new_id
from shardwright.api.server.jobs.library_queue import workflow_id
from shardwright.api.server.jobs.new_jobs import NewJob, Quota
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns
from shardwright.api.server.jobs.workers import orphans
from shardwright.api.server.jobs.workers.orphans import OrphanedJobs
from shardwright.api.server.jobs.workers.slots import WorkerSlots

BEGUN = """INSERT INTO {schema}workflow_status
(workflow_uuid, status, executor_id, queue_name, created_at, updated_at, priority)
VALUES (:id, :status, :executor, 'jobs', 1, 1, 0)"""


class Library:
    """What is asked of the library."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def resume_workflow(self, job_id: str, queue_name: str) -> None:
        self.asked.append((job_id, queue_name))

    def _recover_pending_workflows(self, executors: list[str]) -> None:
        self.asked.append(executors)


class Queue(list[str]):
    """Names under which jobs were queued with the library."""

    def __call__(self, connection: sa.Connection, job_id: str, kind: str, piece: int) -> None:
        self.append(workflow_id(job_id, piece))


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path, queue: Queue) -> Iterator[JobStore]:
    with database(request.param, tmp_path) as url:
        prepare(url)
        engine = open_engine(url)
        yield JobStore(engine, Turns(queue, window=1))
        engine.dispose()


def _entries(engine: sa.Engine, *entries: tuple[str, str, str]) -> None:
    """Entries of the library: workflow id, executor, status."""
    schema = "dbos." if engine.dialect.name == "postgresql" else ""
    with engine.begin() as connection:
        for job, executor, status in entries:
            row = {"id": job, "executor": executor, "status": status}
            connection.execute(sa.text(BEGUN.format(schema=schema)), row)


def _begun(engine: sa.Engine, **executors: str) -> None:
    statuses = {"ended": "SUCCESS"}
    entries = [(job, slot, statuses.get(job, "PENDING")) for job, slot in executors.items()]
    _entries(engine, *entries)


def _job() -> NewJob:
    job = {"id": new_id(), "owner": "ann", "kind": "plan", "body": "{}", "fingerprint": "f"}
    return NewJob(**job, deadline_s=1.0)


def test_what_nobody_works_on_is_put_back_after_a_while(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, engine = [100.0], store.engine
    monkeypatch.setattr(orphans.time, "monotonic", lambda: now_s[0])
    assert [WorkerSlots(engine).take() for _ in range(2)] == [0, 1]
    _begun(engine, mine="slot-0", running="slot-0", others="slot-1", dead="slot-7", ended="slot-7")
    watched, library = OrphanedJobs(store), Library()

    def asked_after(seconds: float) -> Any:
        library.asked.clear()
        now_s[0] += seconds
        watched.requeue(library, 0)
        return sorted(map(str, library.asked))

    with watched.running("running"):
        assert asked_after(10) == asked_after(1) == asked_after(2.5) == []
        assert asked_after(2.5) == ["('mine', 'jobs')", "['slot-7']"]
    assert asked_after(2.5) == ["('mine', 'jobs')", "['slot-7']"]  # until they are
    assert len(asked_after(5)) == 3


@pytest.mark.parametrize("piece", [0, 3])
@pytest.mark.parametrize("status", orphans.GIVEN_UP)
def test_a_job_that_the_library_gave_up_fails_and_the_next_one_follows(
    store: JobStore, queue: Queue, piece: int, status: str
) -> None:
    first, second = _job(), _job()
    store.add([first], Quota(5))
    for number in range(piece):
        store.begin(first.id, number)
        store.give_back(first.id, number, "[]", 1.0)
    store.add([second], Quota(5))
    assert queue == [workflow_id(first.id, number) for number in range(piece + 1)]
    _entries(store.engine, (workflow_id(first.id, piece), "slot-0", status))
    OrphanedJobs(store).requeue(Library(), 0)
    row = store.get("ann", "plan", first.id)
    assert row is not None
    assert (row.outcome, row.status) == ("failed", 500)
    assert orphans.GIVEN_UP_DETAIL in row.answer
    assert store.pieces(first.id) == []
    assert queue[-1] == second.id
