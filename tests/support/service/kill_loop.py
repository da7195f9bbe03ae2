"""Servers and workers that are killed while jobs are asked for, and what is found of the jobs."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from service.job_history import History
from service.request_bodies import QUESTION
from service.services import Service, start_service, stop_service

END_S = 240.0
POSTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """What is killed, and how much."""

    count: int
    of_servers: frozenset[int]
    """The kills that are of the server, by number; the others are of a worker."""
    seed: int
    body: dict[str, Any] = field(default_factory=lambda: QUESTION)


@dataclass(slots=True)
class Outcome:
    """What a run of kills found; ``check`` raises where a job was lost, doubled or went back."""

    jobs: int = 0
    states: Counter[str] = field(default_factory=Counter)
    hashes: set[str] = field(default_factory=set)
    attempts: int = 0
    looks: int = 0
    ready_s: list[float] = field(default_factory=list)
    killed_workers: int = 0


def killed(folder: Path, where: tuple[str, ...], kills: Kills) -> Outcome:
    """Post a job, look, kill; again and again; then wait for every job's end.

    Raises:
        AssertionError: a job was lost, doubled or stuck, or its history cannot have been.
    """
    chance, history, found = random.Random(kills.seed), History(), Outcome()
    service = start_service(folder, *where)
    client = httpx.Client(base_url=service.url, timeout=30)
    for kill in range(kills.count):
        post_job(client, history, kills.body, f"job-{kill}")
        time.sleep(chance.uniform(0.0, 0.6))
        history.look(client)
        if kill not in kills.of_servers:
            found.killed_workers += kill_a_worker(service, chance)
            continue
        service.process.kill()
        service.process.communicate(timeout=10)
        client.close()
        start_s = time.monotonic()
        service = start_service(folder, *where)
        found.ready_s.append(time.monotonic() - start_s)
        client = httpx.Client(base_url=service.url, timeout=30)
        post_job(
            client, history, kills.body, f"job-{kill}"
        )  # its sender cannot know that it arrived
    ends_s = time.monotonic() + END_S
    while not history.look(client) and time.monotonic() < ends_s:
        time.sleep(0.3)
    assert history.look(client), "jobs are stuck"
    history.check()
    count_jobs(client, history, found)
    assert found.jobs == kills.count, f"{found.jobs} jobs for {kills.count} acknowledgements"
    client.close()
    assert stop_service(service)[0] == 0
    return found


def count_jobs(client: httpx.Client, history: History, found: Outcome) -> None:
    """Count what was seen of jobs; raises where lists show others."""
    last = [jobs[-1] for jobs in history.seen.values()]
    found.jobs = len(last)
    found.states = Counter(job["state"] for job in last)
    found.hashes = {job["answer"]["plan_hash"] for job in last if job["answer"] is not None}
    found.attempts = sum(job["attempt"] for job in last)
    found.looks = sum(map(len, history.seen.values()))
    listed: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get("/v1/plans", params={"limit": "100", **cursor}).json()
        listed += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(listed) == sorted(job["id"] for job in last), "lost or doubled"


def post_job(client: httpx.Client, history: History, body: dict[str, Any], key: str) -> None:
    """Ask for a job by its key, again where the service has no time for it."""
    for _ in range(POSTS):
        answer = client.post("/v1/plans", json=body, headers={"Idempotency-Key": key})
        if answer.status_code != 503:
            break
    history.acknowledged(key, answer)


def kill_a_worker(service: Service, chance: random.Random) -> int:
    """Kill one of a service's workers, if there are any; how many that were."""
    workers = sorted(service.workers())
    if workers:
        os.kill(chance.choice(workers), signal.SIGKILL)
    return bool(workers)
