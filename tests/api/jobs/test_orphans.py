"""Begun jobs that nobody works on are put back on the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
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


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    with database(request.param, tmp_path) as url:
        prepare(url)
        made = open_engine(url)
        yield made
        made.dispose()


def _begun(engine: sa.Engine, **executors: str) -> None:
    schema = "dbos." if engine.dialect.name == "postgresql" else ""
    with engine.begin() as connection:
        for job, executor in executors.items():
            status = "SUCCESS" if job == "ended" else "PENDING"
            row = {"id": job, "executor": executor, "status": status}
            connection.execute(sa.text(BEGUN.format(schema=schema)), row)


def test_what_nobody_works_on_is_put_back_after_a_while(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(orphans.time, "monotonic", lambda: now_s[0])
    assert [WorkerSlots(engine).take() for _ in range(2)] == [0, 1]
    _begun(engine, mine="slot-0", running="slot-0", others="slot-1", dead="slot-7", ended="slot-7")
    watched, library = OrphanedJobs(engine), Library()

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
