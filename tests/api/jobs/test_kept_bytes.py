"""What jobs keep is bounded by token, and ended ones keep what somebody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from service.library_entries import EnteredJobs
from service.request_bodies import PLAN
from service.services import database
from service.token_service import ANNA, BEN, Asked, with_service

from shardwright.api.server.jobs import row_cache
from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.ids import new_id
from shardwright.api.server.jobs.kept_bytes import DROPPED_BODY, LISTED_BODY, ROW_BYTES
from shardwright.api.server.jobs.new_jobs import NewJob, Quota, RoomError
from shardwright.api.server.jobs.row_cache import RowCache
from shardwright.api.server.jobs.schema import CACHE, JOBS, PIECES
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns

LONG, PLAN_TEXT = "b" * 10 * LISTED_BODY, "p" * 50_000
ROOM = Quota(100, 2 * (ROW_BYTES + len(LONG) + len(PLAN_TEXT)))
"""For two jobs."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database(request.param, tmp_path) as where:
        prepare(where)
        yield where


@pytest.fixture
def store(url: str) -> Iterator[JobStore]:
    engine = open_engine(url)
    yield JobStore(engine, Turns(EnteredJobs()))
    engine.dispose()


def _job(kind: str = "what-if", owner: str = "ann", body: str = LONG) -> NewJob:
    return NewJob(
        id=new_id(), owner=owner, kind=kind, body=body, fingerprint="f", deadline_s=1.0,
        given_plan=PLAN_TEXT,
    )  # fmt: skip


def _add(store: JobStore, *jobs: NewJob) -> list[Any]:
    return [each if isinstance(each, Exception) else None for each in store.add(jobs, ROOM)]


def _row(store: JobStore, job: NewJob) -> Any:
    with store.engine.connect() as connection:
        return connection.execute(sa.select(JOBS).where(JOBS.c.id == job.id)).one()


def test_a_token_has_room_for_so_much_and_its_ended_jobs_give_it_back(store: JobStore) -> None:
    first, second, third, others = _job(), _job(), _job(), _job(owner="ben")
    refused = _add(store, first, second, third, others)
    assert [type(each) for each in refused] == [type(None)] * 2 + [RoomError, type(None)]
    assert refused[2].kept == ROOM.stored_bytes
    store.cancel("ann", "what-if", first.id)
    assert _row(store, first).kept_bytes == ROW_BYTES + len(DROPPED_BODY)
    assert isinstance(_add(store, third)[0], RoomError)  # the row is there still
    store.forget([first.id])
    assert _add(store, third) == [None]


def test_answers_events_and_pieces_take_room_too(store: JobStore) -> None:
    job = _job()
    _add(store, job)
    before = _row(store, job).kept_bytes
    store.begin(job.id)
    store.give_back(job.id, 0, "[1, 2]", 1.0)
    assert _row(store, job).kept_bytes == before + 6
    store.begin(job.id, 1)
    for event in ("e" * 300, "f" * 500):
        store.write_event(job.id, event)
    store.keep_best(job.id, "k" * 40)
    store.finish(job.id, "done", 200, "a" * 7000)
    kept = ROW_BYTES + len(DROPPED_BODY) + 800 + 40 + 7000
    assert _row(store, job).kept_bytes == kept
    with store.engine.connect() as connection:
        assert connection.execute(sa.select(PIECES)).first() is None


@pytest.mark.parametrize(
    ("kind", "body", "status", "is_kept"),
    [
        ("plan", LONG, 200, True),  # its views and questions about it read it
        ("plan", LONG, 422, False),
        ("plan", LONG[:LISTED_BODY], 422, True),  # lists show what was asked
        ("what-if", LONG[:LISTED_BODY], 200, False),
        ("run", LONG, 422, False),
    ],
)
def test_an_ended_job_keeps_its_answer_and_the_body_that_somebody_reads(
    store: JobStore, kind: str, body: str, status: int, is_kept: bool
) -> None:
    job = _job(kind, body=body)
    _add(store, job)
    store.begin(job.id)
    store.finish(job.id, "done" if status == 200 else "failed", status, "{1}")
    row = _row(store, job)
    assert (row.body, row.given_plan, row.answer) == (body if is_kept else "{}", None, "{1}")
    assert row.kept_bytes == ROW_BYTES + len(row.body) + 3


def test_jobs_of_a_version_that_kept_all_are_trimmed_at_the_start(
    url: str, store: JobStore
) -> None:
    done, failed, opened = _job("plan"), _job("plan"), _job("plan")
    _add(store, done, failed)
    store.add([opened], Quota(100))
    ended = {"finished_ms": 1, "kept_bytes": None, "body": LONG, "given_plan": PLAN_TEXT}
    with store.engine.begin() as connection:
        for job, values in (
            (done, {"outcome": "done", "status": 200, "answer": "{}"}),
            (failed, {"outcome": "cancelled"}),
        ):
            connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(**ended, **values))
    before = _row(store, opened)
    prepare(url)
    rows = [_row(store, job) for job in (done, failed)]
    assert [(row.body, row.given_plan) for row in rows] == [(LONG, None), (DROPPED_BODY, None)]
    assert [row.kept_bytes for row in rows] == [ROW_BYTES + len(LONG) + 2, ROW_BYTES + 2]
    assert _row(store, opened) == before


def test_the_oldest_rows_of_sweeps_go_where_all_take_too_much(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = iter(range(1000))
    monkeypatch.setattr(row_cache, "now_ms", lambda: next(now_ms))
    monkeypatch.setattr(row_cache, "MAX_CACHED_BYTES", 1000)
    monkeypatch.setattr(row_cache, "TRIM_BYTES", 300)
    caches = [RowCache(store.engine), RowCache(store.engine)]  # two workers
    for number in range(30):
        caches[number % 2].put(f"key {number:02}", "v" * 100)
        with store.engine.connect() as connection:
            kept = list(connection.execute(sa.select(CACHE.c.key).order_by(CACHE.c.key)).scalars())
        assert len(kept) <= 10 + 2 * 2  # what each may put before it looks again
        assert kept == [f"key {n:02}" for n in range(number + 1)][-len(kept) :]
        assert len(kept) >= min(10, number + 1)


def test_who_has_no_room_is_told_how_much_and_what_frees_it(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        place = (await ask(ANNA, "POST", "/v1/plans", PLAN)).headers["location"]
        refused = await ask(ANNA, "POST", "/v1/plans", PLAN)
        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (507, "urn:shardwright:problem:storage")
        assert "keep 0.0 MB, with this one more than the 0.0 MB" in problem["detail"]
        assert "DELETE /v1/plans/ID?forget=true" in problem["detail"]
        assert (await ask(BEN, "POST", "/v1/plans", PLAN)).status_code == 202
        assert (await ask(ANNA, "DELETE", f"{place}?forget=perhaps")).status_code == 422
        assert (await ask(BEN, "DELETE", f"{place}?forget=true")).status_code == 404
        assert (await ask(ANNA, "DELETE", f"{place}?forget=true")).status_code == 202  # cancelled
        assert (await ask(ANNA, "DELETE", place)).status_code == 204
        assert (await ask(ANNA, "GET", place)).json()["state"] == "cancelled"
        assert (await ask(ANNA, "DELETE", f"{place}?forget=true")).status_code == 204
        assert (await ask(ANNA, "GET", place)).status_code == 404
        assert (await ask(ANNA, "POST", "/v1/plans", PLAN)).status_code == 202

    with_service(tmp_path, test, stored_bytes=ROW_BYTES + 1000)
