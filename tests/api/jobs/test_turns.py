"""Owners take turns: who asks for much waits behind his own jobs, never others behind them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from service.library_entries import EnteredJobs
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.ids import new_id
from shardwright.api.server.jobs.new_jobs import NewJob, Quota
from shardwright.api.server.jobs.store import JobStore
from shardwright.api.server.jobs.turns import Turns

QUOTA = Quota(100)


@pytest.fixture
def queue() -> EnteredJobs:
    return EnteredJobs()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database(request.param, tmp_path) as url:
        prepare(url)
        yield url


def _store(url: str, queue: EnteredJobs, window: int | None) -> JobStore:
    return JobStore(open_engine(url), Turns(queue, window))


def _job(owner: str, kind: str = "plan") -> NewJob:
    return NewJob(
        id=new_id(), owner=owner, kind=kind, body="{}", fingerprint="f", deadline_s=86_400.0
    )


def _work(store: JobStore, queue: EnteredJobs, start: int) -> str:
    """Do the job that came to the library as the so-maniest."""
    job_id, piece = queue[start]
    assert store.begin(job_id, piece) is not None
    store.finish(job_id, "done", 200, "{}")
    return job_id


def test_the_first_job_of_another_starts_next_beside_98_of_a_greedy_one(
    where: str, queue: EnteredJobs
) -> None:
    store = _store(where, queue, window=1)
    greedy = [_job("greedy") for _ in range(98)]
    for job in greedy:
        store.add([job], QUOTA)
    assert queue == [(greedy[0].id, 0)]
    other = _job("other")
    store.add([other], QUOTA)
    assert queue == [(greedy[0].id, 0), (other.id, 0)]
    done = [_work(store, queue, number) for number in range(99)]
    assert done == [greedy[0].id, other.id, *(job.id for job in greedy[1:])]
    store.engine.dispose()


def test_without_a_window_all_are_with_the_library_at_once(where: str, queue: EnteredJobs) -> None:
    store = _store(where, queue, window=None)
    jobs = [_job("ann") for _ in range(5)]
    store.add(jobs, QUOTA)
    assert queue == [(job.id, 0) for job in jobs]
    store.engine.dispose()


def test_an_owner_never_has_more_there_than_the_window_and_none_is_left_out(
    where: str, queue: EnteredJobs
) -> None:
    """Random jobs come, end, give their worker back and are cancelled, by seed."""
    store, chance = _store(where, queue, window=2), random.Random(5)
    jobs: dict[str, NewJob] = {}
    ended: set[str] = set()
    begun = 0

    def there() -> Counter[str]:
        return Counter(jobs[job_id].owner for job_id in {j for j, _ in queue[begun:]} - ended)

    for _ in range(60):
        asked = [_job(chance.choice(["ann", "ben", "cid"])) for _ in range(chance.randrange(3))]
        jobs |= {job.id: job for job in asked}
        store.add(asked, QUOTA)
        waiting = sorted(jobs.keys() - ended)
        if chance.random() < 0.2 and waiting:
            gone = chance.choice(waiting)
            store.cancel(jobs[gone].owner, "plan", gone)
            if (row := store.get(jobs[gone].owner, "plan", gone)) is not None and row.outcome:
                ended.add(gone)
        if begun < len(queue):
            job_id, piece = queue[begun]
            begun += 1
            if store.begin(job_id, piece) is not None:
                if chance.random() < 0.3:
                    store.give_back(job_id, piece, "[]", 1.0)
                else:
                    store.finish(job_id, "done", 200, "{}")
                    ended.add(job_id)
        assert max(there().values(), default=0) <= 2
    while begun < len(queue):
        job_id, piece = queue[begun]
        begun += 1
        if store.begin(job_id, piece) is not None:
            store.finish(job_id, "done", 200, "{}")
            ended.add(job_id)
    assert ended == jobs.keys()
    assert len(set(queue)) == len(queue)
    store.engine.dispose()


def test_a_sweep_that_gave_its_worker_back_goes_behind_its_owners_other_jobs(
    where: str, queue: EnteredJobs
) -> None:
    store = _store(where, queue, window=1)
    sweep, short = _job("ann", "what-if"), _job("ann")
    store.add([sweep, short], QUOTA)
    row = store.begin(sweep.id)
    assert row is not None
    store.give_back(sweep.id, 0, "[]", 1.5)
    assert queue == [(sweep.id, 0), (short.id, 0)]
    assert store.others_wait(sweep.id)
    assert _work(store, queue, 1) == short.id
    assert queue[2:] == [(sweep.id, 1)]
    assert not store.others_wait(sweep.id)
    assert store.begin(sweep.id, 0) is None  # that piece is done, whoever comes again with it
    again = store.begin(sweep.id, 1)
    assert again is not None
    assert (again.attempt, again.worked_s) == (row.attempt, 1.5)
    store.engine.dispose()


def test_what_a_worker_that_died_did_not_release_follows_all_the_same(
    where: str, queue: EnteredJobs
) -> None:
    """As where the window was smaller when they came."""
    closed, store = _store(where, queue, window=0), _store(where, queue, window=1)
    first, second = _job("ann"), _job("ann")
    closed.add([first, second], QUOTA)
    assert queue == []
    store.release_waiting()
    assert queue == [(first.id, 0)]
    store.release_waiting()
    assert len(queue) == 1
    for each in (closed, store):
        each.engine.dispose()
