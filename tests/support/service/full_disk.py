"""A service on a disk that is full for a while."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from service.request_bodies import PLAN
from service.services import Service, start_service, stop_service

PROBLEM = "application/problem+json"
DISK_BYTES = 16 * 2**20
LEFT_BYTES = 32_768
"""Of a disk that is about to be full."""
EARLIER = 12
"""Jobs that were acknowledged before: some run, some wait."""
FULL_S = 7.0
"""Longer than a worker that cannot beat goes on."""

Fill = Callable[[Service, bool], None]
"""Fills the disk under a service, or frees it again."""


@dataclass(slots=True)
class FullDisk:
    """What was found: places of jobs that were acknowledged, and how many posts were refused."""

    places: list[str] = field(default_factory=list)
    refused: int = 0
    recovered_s: float = 0.0


def limited_files(folder: Path) -> Fill:
    """A disk of which a service's processes get no more: without rights to make a real one."""

    def fill(service: Service, full: bool) -> None:
        largest = max(file.stat().st_size for file in folder.glob("jobs.sqlite*"))
        size = largest + LEFT_BYTES if full else resource.RLIM_INFINITY
        for process in (service.process.pid, *service.workers()):
            _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))

    return fill


@contextmanager
def small_disk(folder: Path) -> Iterator[Fill]:
    """A file system of its own on a folder; it takes root's rights.

    Raises:
        OSError, subprocess.CalledProcessError: it cannot be made.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    ballast = folder / "ballast"

    def fill(service: Service, full: bool) -> None:
        if not full:
            ballast.unlink(missing_ok=True)
            return
        used = sum(file.stat().st_size for file in folder.iterdir())
        ballast.write_bytes(bytes(max(0, DISK_BYTES - used - LEFT_BYTES)))

    try:
        yield fill
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def filled(folder: Path, fill: Fill) -> FullDisk:
    """Fill the disk under a service, post until it refuses, free the disk, await every job.

    Raises:
        AssertionError: a job was lost, doubled or stuck, or the service said that it is ready.
    """
    found = FullDisk()
    service = start_service(folder, "--db", f"sqlite:///{folder}/jobs.sqlite")
    try:
        with httpx.Client(base_url=service.url, timeout=40) as client:
            for _ in range(EARLIER):
                _post(client, found)
            fill(service, True)
            ends_s = time.monotonic() + 60
            while not found.refused:
                assert time.monotonic() < ends_s, "the disk is not full"
                _post(client, found)
            assert client.get("/healthz").status_code == 200
            ends_s = time.monotonic() + FULL_S
            while time.monotonic() < ends_s:
                assert client.get("/readyz").status_code == 503, "ready, on a full disk"
                _post(client, found)
                time.sleep(0.5)
            fill(service, False)
            _await_all(client, service, fill, found)
            assert client.get("/readyz").status_code == 200
    except BaseException:
        service.process.kill()
        service.process.communicate()
        raise
    code, err = stop_service(service)
    assert code == 0
    assert "Traceback" not in err
    assert all('"event": "worker ' in line for line in err.splitlines()), err
    return found


def _post(client: httpx.Client, found: FullDisk) -> None:
    answer = client.post("/v1/plans", json=PLAN)
    if answer.status_code == 202:
        found.places.append(answer.headers["location"])
        return
    assert answer.status_code == 503
    assert answer.headers["content-type"] == PROBLEM
    assert answer.headers["retry-after"]
    found.refused += 1


def _await_all(client: httpx.Client, service: Service, fill: Fill, found: FullDisk) -> None:
    start_s, left = time.monotonic(), set(found.places)
    while left:
        assert time.monotonic() < start_s + 90, f"{len(left)} of {len(found.places)} are stuck"
        fill(service, False)  # for workers, too, that came meanwhile
        jobs = {place: client.get(place) for place in left}
        left -= {place for place, job in jobs.items()
                 if job.status_code == 200 and job.json()["state"] == "done"}  # fmt: skip
        time.sleep(0.2)
    found.recovered_s = time.monotonic() - start_s
    listed = client.get("/v1/plans", params={"limit": 100}).json()["items"]
    assert len(listed) == len(found.places), "lost or doubled"
