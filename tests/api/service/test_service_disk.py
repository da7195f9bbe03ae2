"""A disk that is full for a while, and a database that may only be read."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from service.request_bodies import PLAN
from service.services import Service, start_service, stop_service

PROBLEM = "application/problem+json"
READ_ONLY = """
import os, sys
from shardwright.api.server.jobs.database import prepare
from shardwright.spec.errors import InputError
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    prepare(sys.argv[1])
except InputError as error:
    print(error)
"""


def _limit(service: Service, size: int) -> None:
    """Let no file of the service and its workers grow beyond ``size`` bytes."""
    for process in (service.process.pid, *service.workers()):
        _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))


@pytest.mark.evidence
@pytest.mark.timeout(200)
def test_a_full_disk_is_a_503_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--db", f"sqlite:///{tmp_path}/jobs.sqlite")
    with httpx.Client(base_url=service.url, timeout=40) as client:
        places = [client.post("/v1/plans", json=PLAN).headers["location"]]
        _limit(service, max(f.stat().st_size for f in tmp_path.glob("jobs.sqlite*")) + 32_768)
        statuses: list[int] = []
        ends_s = time.monotonic() + 60
        while 503 not in statuses and time.monotonic() < ends_s:
            answer = client.post("/v1/plans", json=PLAN)
            statuses.append(answer.status_code)
            if answer.status_code == 202:
                places.append(answer.headers["location"])
        assert set(statuses) <= {202, 503}
        assert statuses[-1] == 503
        assert answer.headers["content-type"] == PROBLEM
        assert answer.headers["retry-after"]
        assert client.get("/healthz").status_code == 200
        ends_s = time.monotonic() + 90
        left = set(places)
        while left and time.monotonic() < ends_s:
            _limit(service, resource.RLIM_INFINITY)  # of workers, too, that came meanwhile
            jobs = {place: client.get(place) for place in left}
            left -= {p for p, job in jobs.items()
                     if job.status_code == 200 and job.json()["state"] == "done"}  # fmt: skip
            time.sleep(0.2)
        assert left == set()
        listed = client.get("/v1/plans", params={"limit": 100}).json()["items"]
        assert len(listed) == len(places)
    code, err = stop_service(service)
    assert code == 0
    assert "Traceback" not in err
    assert all('"event": "worker ended"' in line for line in err.splitlines())


def test_a_database_that_may_only_be_read_is_refused_with_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "jobs.sqlite"
        file.write_bytes(b"")
        file.chmod(0o444)
        if os.geteuid() != 0:
            folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, f"sqlite:///{file}"], capture_output=True, text=True,
            check=False, timeout=50, env={**os.environ, "PYTHONSAFEPATH": "1"}, cwd="/",
        )  # fmt: skip
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--db: got ")
    assert "may not be written" in done.stdout or "readonly" in done.stdout
    assert "move jobs.sqlite" in done.stdout
    assert done.stdout.count("\n") == 1
