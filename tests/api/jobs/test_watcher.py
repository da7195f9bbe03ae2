"""One reader serves all listeners: a flood of events of one job delays no other's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from shardwright.api.server.jobs.schema import JOBS, STREAMS
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns
from shardwright.api.server.jobs.watcher import MAX_UNSENT, JobListener, JobWatcher

FLOOD = 3000


@pytest.fixture
def store() -> JobStore:
    """Jobs of two owners in memory; the first's, with smaller ids, have many events."""
    engine = sa.create_engine(
        "sqlite://", poolclass=sa.pool.StaticPool,
        connect_args={"check_same_thread": False},
        execution_options={"schema_translate_map": {"dbos": None}},
    )  # fmt: skip
    with engine.begin() as connection:
        JOBS.create(connection)
        STREAMS.create(connection)
        for owner, job_id, count in (("greedy", "a", FLOOD), ("greedy", "b", FLOOD), ("x", "z", 3)):
            job = {"id": job_id, "owner": owner, "kind": "plan", "body": "{}", "fingerprint": "",
                   "deadline_s": 1.0, "created_ms": 0, "outcome": "done"}  # fmt: skip
            connection.execute(sa.insert(JOBS).values(**job))
            events = [{"workflow_uuid": job_id, "key": "events", "offset": number, "value": "{}"}
                      for number in range(count)]  # fmt: skip
            connection.execute(sa.insert(STREAMS), events)
    return JobStore(engine, Turns(lambda *job: None))


def _poll(watcher: JobWatcher, listeners: Sequence[JobListener]) -> None:
    asyncio.run(watcher._poll(list(listeners)))


def test_others_events_arrive_at_once_beside_a_flood(store: JobStore) -> None:
    watcher = JobWatcher(store)
    flooded = [watcher.listen(job_id, 0, "greedy") for job_id in "ab" for _ in range(100)]
    other = watcher.listen("z", 0, "x")
    _poll(watcher, [*flooded, other])
    assert [row.offset for row in other.events] == [0, 1, 2]
    assert other.outcome == "done"
    assert all(len(listener.events) == MAX_UNSENT for listener in flooded)


def test_a_client_that_does_not_read_is_not_read_for(store: JobStore) -> None:
    watcher = JobWatcher(store)
    listener = watcher.listen("a", 0)
    for _ in range(5):
        _poll(watcher, [listener])
    assert len(listener.events) == MAX_UNSENT
    assert listener.outcome is None
    seen = 0
    while listener.outcome is None:
        seen, listener.events = seen + len(listener.events), []
        _poll(watcher, [listener])
    assert seen + len(listener.events) == FLOOD


def test_streams_are_counted_by_owner(store: JobStore) -> None:
    watcher = JobWatcher(store)
    for owner, offset in (("x", 0), ("x", None), ("y", 3)):
        watcher.listen("a", offset, owner)
    assert (watcher.streams("x"), watcher.streams("y"), watcher.streams()) == (1, 1, 2)


def test_a_token_with_all_its_streams_is_refused_and_another_is_not(
    monkeypatch: pytest.MonkeyPatch, store: JobStore
) -> None:
    from shardwright.api.server.jobs.routes import events

    monkeypatch.setattr(events, "MAX_OWNER_STREAMS", 2)

    async def row(owner: str, kind: str, job_id: str) -> Any:
        return SimpleNamespace(outcome=None), None

    jobs = cast("Any", SimpleNamespace(row=row, watcher=JobWatcher(store), store=store))

    async def ask(owner: str) -> Any:
        request = cast("Any", SimpleNamespace(headers={}, scope={"owner": owner}))
        return await events.events_response(request, jobs, "plan", "a")

    answers = [asyncio.run(ask(owner)) for owner in ("x", "x", "x", "y")]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
    assert answers[2].headers["retry-after"] == "5"
    assert b"2 event streams of this token" in answers[2].body
