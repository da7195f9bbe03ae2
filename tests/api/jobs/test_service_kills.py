"""Workers and servers that are killed: every acknowledged job ends, once, with the same plan."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.kill_loop import Kills, killed
from service.request_bodies import PLAN
from service.services import Service, database, served, start_service, stop_service

KILLS = Kills(count=5, of_servers=frozenset((2,)), seed=9)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The flag of an empty database of each kind."""
    with database(request.param, tmp_path) as url:
        yield "--db", url


@pytest.mark.timeout(400)
def test_no_acknowledged_job_is_lost_or_doubled(tmp_path: Path, where: tuple[str, str]) -> None:
    found = killed(tmp_path, where, KILLS)
    assert found.states == {"done": KILLS.count}
    assert len(found.hashes) == 1
    assert len(found.ready_s) == len(KILLS.of_servers)


LONG: dict[str, Any] = {
    "model": "gpt2",
    "cluster": "4xH100",
    "workload": {"global_batch": 16, "seq_len": 1024},
    "deadline_s": 8,
}
"""A search whose first plan comes at once, on a slow machine too, and whose proof takes longer."""


@pytest.mark.timeout(200)
def test_a_slot_that_stays_dead_is_taken_over(tmp_path: Path, where: tuple[str, str]) -> None:
    """A service is killed in the midst of a search and stays dead; another one finds its job."""
    first = start_service(tmp_path, *where)
    place = httpx.post(first.url + "/v1/plans", json=LONG, timeout=30).headers["location"]
    _reached(first, place, "running")
    first.process.kill()
    first.process.communicate(timeout=10)
    with served(tmp_path, *where) as second:
        job = _reached(second, place, "done")
    assert job["attempt"] == 2
    assert job["answer"]["search"]["stopped_by"] in ("deadline", "work", "proof")


def _reached(service: Service, place: str, state: str) -> Any:
    """The job as soon as it is in a state, or has ended in another."""
    ends_s = time.monotonic() + 90
    while True:
        job = httpx.get(service.url + place, timeout=30).json()
        if job["state"] == state:
            return job
        assert job["state"] in ("queued", "running"), job
        assert time.monotonic() < ends_s, job
        time.sleep(0.05)


CLAIM = """UPDATE workflow_status SET status = 'PENDING', owner_xid = 'x',
executor_id = 'slot-' || (SELECT min(slot) FROM shardwright_slots) WHERE workflow_uuid = ?"""
"""What the library does just before it begins a job."""


@pytest.mark.timeout(200)
def test_stopped_workers_are_replaced_and_jobs_that_nobody_began_are_done(tmp_path: Path) -> None:
    """Both on one service, for it takes long to start."""
    service = start_service(tmp_path, "--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    with httpx.Client(base_url=service.url, timeout=30) as client:
        _done(client, _accepted(client))
        stopped = _signalled(service, signal.SIGSTOP)
        _done(client, _accepted(client))
        assert not stopped & service.workers()
        paused = _signalled(service, signal.SIGSTOP)
        place = _accepted(client)
        with sqlite3.connect(tmp_path / "jobs.sqlite", timeout=20) as other:
            other.execute(CLAIM, (place.rpartition("/")[2],))
        other.close()
        assert _signalled(service, signal.SIGCONT) == paused
        _done(client, place)
        assert paused == service.workers()
    code, err = stop_service(service)
    assert code == 0
    assert err.count('"event": "worker killed"') == err.count("\n") == len(stopped)


def _signalled(service: Service, number: int) -> set[int]:
    workers = service.workers()
    for worker in workers:
        os.kill(worker, number)
    return workers


def _accepted(client: httpx.Client) -> str:
    """Where a job is; asked again where a worker was stopped while it held the database."""
    ends_s = time.monotonic() + 60
    while True:
        answer = client.post("/v1/plans", json=PLAN)
        if answer.status_code != 503 or time.monotonic() > ends_s:
            return str(answer.headers["location"])
        time.sleep(float(answer.headers["retry-after"]))


def _done(client: httpx.Client, place: str) -> None:
    ends_s = time.monotonic() + 90
    while client.get(place).json()["state"] != "done":
        assert time.monotonic() < ends_s
        time.sleep(0.2)
