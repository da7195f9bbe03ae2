"""Workers and servers that are killed: every acknowledged job ends, once, with the same plan."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from job_history import History
from services import Service, database, start_service, stop_service

KILLS = 10
OF_SERVERS = (3, 7)
PLAN = {
    "model": {"layers": 2, "hidden": 64, "heads": 4, "vocab": 300},
    "cluster": "2xH100",
    "workload": {"global_batch": 4, "seq_len": 64},
}


def _post(client: httpx.Client, history: History, key: str) -> None:
    headers = {"Idempotency-Key": key}
    history.acknowledged(key, client.post("/v1/plans", json=PLAN, headers=headers))


def _kill_a_worker(service: Service, chance: random.Random) -> None:
    if workers := sorted(service.workers()):
        os.kill(chance.choice(workers), signal.SIGKILL)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The flag of an empty database of each kind."""
    with database(request.param, tmp_path) as url:
        yield "--db", url


@pytest.mark.timeout(400)
def test_no_acknowledged_job_is_lost_or_doubled(tmp_path: Path, where: tuple[str, str]) -> None:
    chance, history = random.Random(9), History()
    service = start_service(tmp_path, *where)
    client = httpx.Client(base_url=service.url, timeout=30)
    for kill in range(KILLS):
        _post(client, history, f"job-{kill}")
        time.sleep(chance.uniform(0.0, 0.6))
        history.look(client)
        if kill not in OF_SERVERS:
            _kill_a_worker(service, chance)
            continue
        service.process.kill()
        service.process.communicate(timeout=10)
        client.close()
        service = start_service(tmp_path, *where)
        client = httpx.Client(base_url=service.url, timeout=30)
        _post(client, history, f"job-{kill}")  # its sender cannot know that it arrived
    ends_s = time.monotonic() + 200
    while not history.look(client) and time.monotonic() < ends_s:
        time.sleep(0.3)
    assert history.look(client)
    history.check()
    last = [jobs[-1] for jobs in history.seen.values()]
    assert len(last) == KILLS
    assert {job["state"] for job in last} == {"done"}
    assert len({job["answer"]["plan_hash"] for job in last}) == 1
    listed = client.get("/v1/plans", params={"limit": 100}).json()["items"]
    assert sorted(item["id"] for item in listed) == sorted(job["id"] for job in last)
    client.close()
    assert stop_service(service) == (0, "")


@pytest.mark.timeout(200)
def test_a_slot_that_stays_dead_is_taken_over(tmp_path: Path, where: tuple[str, str]) -> None:
    """Two services on one database; one is killed in the midst of a search and stays dead."""
    first = start_service(tmp_path, *where)
    slow: dict[str, Any] = {
        "model": "llama-3-70b",
        "cluster": "8x8xH100",
        "workload": {"global_batch": 512, "seq_len": 8192},
        "deadline_s": 3,
    }
    place = httpx.post(first.url + "/v1/plans", json=slow, timeout=30).headers["location"]
    ends_s = time.monotonic() + 30
    while time.monotonic() < ends_s:
        if httpx.get(first.url + place).json()["state"] == "running":
            break
        time.sleep(0.05)
    second = start_service(tmp_path, *where)
    first.process.kill()
    first.process.communicate(timeout=10)
    ends_s = time.monotonic() + 90
    job: Any = {}
    while time.monotonic() < ends_s:
        job = httpx.get(second.url + place, timeout=30).json()
        if job["state"] == "done":
            break
        time.sleep(0.2)
    assert job["state"] == "done"
    assert job["answer"]["search"]["stopped_by"] in ("deadline", "work", "proof")
    assert stop_service(second) == (0, "")
