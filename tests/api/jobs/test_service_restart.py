"""A service that ends and begins again: its jobs go on, and who watched them goes on watching."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import httpx
import pytest
from service.services import start_service, stop_service

SLOW = {
    "model": "llama-3-8b",
    "cluster": "2x8xH100",
    "workload": {"global_batch": 512, "seq_len": 8192},
    "deadline_s": 10,
}


def _watched(url: str, last: int | None, seen: list[tuple[int, str]]) -> None:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    name = ""
    with httpx.stream("GET", url + "/events", headers=headers, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("id: "):
                seen.append((int(line.removeprefix("id: ")), name))


@pytest.mark.timeout(200)
def test_a_watched_job_goes_on_after_a_restart(tmp_path: Path) -> None:
    where = ("--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    first = start_service(tmp_path, *where)
    place = httpx.post(first.url + "/v1/plans", json=SLOW, timeout=30).headers["location"]
    seen: list[tuple[int, str]] = []
    watching = threading.Thread(target=_watched, args=(first.url + place, None, seen))
    watching.start()
    ends_s = time.monotonic() + 40
    while len(seen) < 2 and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert stop_service(first) == (0, "")  # with a stream open, and quickly
    watching.join(10)
    assert not watching.is_alive()
    assert "done" not in [name for _, name in seen]
    second = start_service(tmp_path, *where)
    _watched(second.url + place, seen[-1][0], seen)
    assert [number for number, _ in seen] == list(range(len(seen)))
    assert [name for _, name in seen].count("done") == 1
    job = httpx.get(second.url + place, timeout=30).json()
    assert job["state"] == "done"
    assert job["attempt"] >= 2
    assert stop_service(second) == (0, "")
    third = start_service(tmp_path, *where)
    assert httpx.get(third.url + place, timeout=30).json() == job
    assert stop_service(third) == (0, "")


@pytest.mark.evidence
@pytest.mark.timeout(150)
def test_the_same_question_has_the_same_plan_after_a_restart(tmp_path: Path) -> None:
    """Byte for byte, though hashes of texts are seeded anew in every process."""
    asked = {
        "model": "gpt2-xl",
        "cluster": "8xA100-80GB",
        "workload": {"global_batch": 64, "seq_len": 1024},
    }
    answers = []
    for number in range(2):
        service = start_service(tmp_path, "--db", f"sqlite:///{tmp_path}/jobs-{number}.sqlite")
        found = httpx.post(
            service.url + "/v1/plans", json=asked, headers={"Prefer": "wait=30"}, timeout=60
        )
        assert found.status_code == 200, found.text
        kept = httpx.get(service.url + found.headers["location"], timeout=30).json()["answer"]
        assert kept == found.json()
        answers.append(re.sub(rb'"seconds": [0-9.e-]+', b'"seconds": 0', found.content))
        assert stop_service(service) == (0, "")
    assert answers[0] == answers[1]
