"""Workers and servers that are killed: every acknowledged job ends, once, with the same plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.kill_loop import Kills, killed
from service.services import database, start_service, stop_service

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
