"""Two servers on one database whose clocks differ, with workers and servers that are killed."""

from __future__ import annotations

import os
import random
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from service.job_history import History
from service.kill_loop import END_S, Kills, Outcome, count_jobs, kill_a_worker, post_job
from service.services import Service, start_service, stop_service

SHIM = """import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {ahead_s}
time.time_ns = lambda: _time_ns() + {ahead_s} * 10**9
"""
"""What Python runs first in every process of a server."""
RESTARTS = re.compile(r"^shardwright_worker_restarts (\S+)$", re.MULTILINE)
QUIET_S = 8.0
"""Longer than a worker that does not beat is let live."""


@dataclass(slots=True)
class SkewedServer:
    """A server whose clock is ahead, and how many of its workers were killed."""

    folder: Path
    where: tuple[str, ...]
    ahead_s: int
    killed_workers: int = 0
    service: Service = field(init=False)

    def start(self) -> float:
        """Start it, again where it was killed; the seconds until it is ready."""
        shim = self.folder / f"clock{self.ahead_s:+d}"
        shim.mkdir(exist_ok=True)
        (shim / "sitecustomize.py").write_text(SHIM.format(ahead_s=self.ahead_s))
        paths = [str(shim), *filter(None, [os.environ.get("PYTHONPATH")])]
        start_s, self.killed_workers = time.monotonic(), 0
        environment = {"PYTHONPATH": os.pathsep.join(paths)}
        self.service = start_service(self.folder, *self.where, environment=environment)
        return time.monotonic() - start_s

    def kill_a_worker(self, chance: random.Random) -> int:
        """Kill one of its workers, if there are any; how many that were."""
        killed = kill_a_worker(self.service, chance)
        self.killed_workers += killed
        return killed

    def needless_restarts(self) -> int:
        """How many of its workers were replaced though nobody had killed them."""
        text = httpx.get(self.service.url + "/metrics", timeout=30).text
        found = RESTARTS.search(text)
        assert found is not None
        return int(float(found[1])) - self.killed_workers

    def kill(self) -> None:
        """Kill it, but not its workers, which notice."""
        self.service.process.kill()
        self.service.process.communicate(timeout=10)


def killed_under_skew(
    folder: Path, where: tuple[str, ...], kills: Kills, skew_s: int
) -> tuple[Outcome, int]:
    """Post a job to one of two servers, look from the other one, kill; then wait for every job.

    Returns:
        What was found, and how many workers were replaced though nobody had killed them.

    Raises:
        AssertionError: a job was lost, doubled or stuck, or its history cannot have been.
    """
    chance, history, found = random.Random(kills.seed), History(), Outcome()
    servers = [SkewedServer(folder, where, ahead_s) for ahead_s in (skew_s, -skew_s)]
    needless = 0
    try:
        for server in servers:
            server.start()
        for kill in range(kills.count):
            here, there = servers[kill % 2], servers[1 - kill % 2]
            with httpx.Client(base_url=here.service.url, timeout=30) as client:
                post_job(client, history, kills.body, f"job-{kill}")
            time.sleep(chance.uniform(0.2, 1.5))
            with httpx.Client(base_url=there.service.url, timeout=30) as client:
                history.look(client)
            if kill in kills.of_servers:
                needless += here.needless_restarts()
                here.kill()
                found.ready_s.append(here.start())
            else:
                found.killed_workers += chance.choice(servers).kill_a_worker(chance)
        with httpx.Client(base_url=servers[0].service.url, timeout=30) as client:
            _await_all(client, history)
            count_jobs(client, history, found)
        assert found.jobs == kills.count, f"{found.jobs} jobs for {kills.count} acknowledgements"
        time.sleep(QUIET_S)
        needless += sum(server.needless_restarts() for server in servers)
    finally:
        for server in servers:
            if hasattr(server, "service") and server.service.process.poll() is None:
                stop_service(server.service)
    return found, needless


def _await_all(client: httpx.Client, history: History) -> None:
    ends_s = time.monotonic() + END_S
    while not history.look(client):
        assert time.monotonic() < ends_s, "jobs are stuck"
        time.sleep(0.3)
    history.look(client)
    history.check()
