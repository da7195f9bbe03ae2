"""Jobs that come together are kept as if they had come one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.ids import new_id
from shardwright.api.server.jobs.kept_bytes import new_job_bytes
from shardwright.api.server.jobs.new_jobs import (
    AddResult,
    KeyUsedError,
    NewJob,
    Quota,
    QuotaError,
    RoomError,
)
from shardwright.api.server.jobs.schema import JOBS
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns

QUOTA = Quota(3, 5 * new_job_bytes({"body": "x", "given_plan": None, "given_calibration": None}))
ASKED = st.tuples(
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([None, "k", "l"]),
    st.sampled_from(["x", "y" * 20_000]),
)
"""Owner, idempotency key, body."""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobStore]:
    with database(request.param, tmp_path) as url:
        prepare(url)
        engine = open_engine(url)
        yield JobStore(engine, Turns(_note))
        engine.dispose()


QUEUED: list[str] = []


def _note(connection: sa.Connection, job_id: str, kind: str, piece: int) -> None:
    QUEUED.append(job_id)


def _job(owner: str, key: str | None, body: str) -> NewJob:
    return NewJob(
        id=new_id(), owner=owner, kind="plan", body=body, fingerprint=body, deadline_s=1.0,
        idempotency_key=key,
    )  # fmt: skip


def _add(store: JobStore, jobs: Sequence[NewJob]) -> tuple[list[AddResult], list[str]]:
    """What is said of each, and which were put on the queue."""
    QUEUED.clear()
    return store.add(jobs, QUOTA), [*QUEUED]


def _said(found: AddResult, jobs: Sequence[NewJob]) -> object:
    """Without names: the number of the job that is meant and whether it is new, or the refusal."""
    if isinstance(found, (KeyUsedError, QuotaError, RoomError)):
        return type(found), *found.args
    row, new = found
    return [job.id for job in jobs].index(row.id), new


def _kept(store: JobStore) -> set[str]:
    with store.engine.connect() as connection:
        return set(connection.execute(sa.select(JOBS.c.id)).scalars())


def _forget(store: JobStore) -> None:
    store.forget(sorted(_kept(store)))


def test_a_key_twice_in_one_go_is_one_job(store: JobStore) -> None:
    jobs = [_job("ann", "k", "x"), _job("ann", "k", "x"), _job("ann", "k", "y")]
    found, queued = _add(store, jobs)
    assert [_said(each, jobs) for each in found] == [(0, True), (0, False), (KeyUsedError,)]
    assert queued == [jobs[0].id]
    assert _kept(store) == {jobs[0].id}


def test_the_last_ones_beyond_the_quota_are_refused_and_leave_nothing(store: JobStore) -> None:
    jobs = [_job("ann", None, "x") for _ in range(QUOTA.open_jobs + 2)] + [_job("bob", None, "x")]
    found, queued = _add(store, jobs)
    assert [isinstance(each, QuotaError) for each in found] == [False] * 3 + [True] * 2 + [False]
    assert queued == [job.id for job in jobs[:3] + jobs[5:]]
    assert _kept(store) == set(queued)
    store.finish(jobs[0].id, "done", 200, "{}")
    (again,), _ = _add(store, [_job("ann", None, "x")])
    assert not isinstance(again, Exception)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(ASKED, min_size=1, max_size=9))
def test_together_is_as_one_by_one(store: JobStore, asked: list[tuple[str, str, str]]) -> None:
    jobs = [_job(*each) for each in asked]
    together, queued = _add(store, jobs)
    said = [_said(each, jobs) for each in together]
    assert _kept(store) == set(queued)
    _forget(store)
    apart = [_said(_add(store, [job])[0][0], jobs) for job in jobs]
    _forget(store)
    assert said == apart
