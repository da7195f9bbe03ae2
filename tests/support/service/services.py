"""``plan serve`` as tests start and stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from service import postgres

POSTGRES = "SHARDWRIGHT_TEST_POSTGRES"
"""A variable with the URL of a PostgreSQL server's database, where the tests' own is not wanted;
databases are made beside it."""


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database; the test is skipped, and counted, where there can be none."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/jobs.sqlite"
        return
    given = os.environ.get(POSTGRES) or postgres.server()
    if given is None:
        pytest.skip("no PostgreSQL on this machine (make system-deps installs it)")
    url = sa.make_url(given)
    name = f"shardwright_{os.getpid()}_{time.time_ns()}"
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
        yield url.set(database=name).render_as_string(hide_password=False)
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@dataclass
class Service:
    """A running ``plan serve``."""

    url: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def children(self) -> set[int]:
        """Process numbers of the children that answer at once."""
        return self._running("server.compute.child")

    def workers(self) -> set[int]:
        """Process numbers of its workers."""
        return self._running("jobs.workers.worker")

    def _running(self, module: str) -> set[int]:
        found = set()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
                command = path.with_name("cmdline").read_bytes().decode()
            except OSError:  # it ended meanwhile
                continue
            mine = int(fields[1]) == self.process.pid and fields[0] != "Z"
            if mine and module in command:
                found.add(int(path.parent.name))
        return found


def start_service(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Service:
    """Start ``plan serve`` on a free port and wait until it can compute.

    Its database is the folder's unless another is named: in the user's, jobs that another service
    was ended with would go on here.
    """
    if "--db" not in arguments:
        arguments = (*arguments, "--db", f"sqlite:///{folder}/jobs.sqlite")
    process = subprocess.Popen(
        [sys.executable, "-m", "shardwright.api.cli.main", "serve", "--port", "0", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONFAULTHANDLER": "1", **(environment or {})},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    service = Service(url=line.split()[2], process=process)
    ends_s = time.monotonic() + 40
    while time.monotonic() < ends_s:
        if httpx.get(service.url + "/readyz", timeout=5).status_code == 200:
            return service
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the service was not ready in time")


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Service]:
    """A service for a block; it must end without a word of complaint."""
    running = start_service(folder, *arguments)
    try:
        yield running
    except BaseException:
        running.process.kill()
        running.process.communicate()
        raise
    assert stop_service(running) == (0, "")


def stop_service(service: Service, number: int = signal.SIGINT) -> tuple[int, str]:
    """Press Ctrl-C, or send another signal; exit code and what it wrote to its error output."""
    service.process.send_signal(number)
    try:
        _, err = service.process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        service.process.send_signal(signal.SIGABRT)  # its stacks are what the test shows
        raise AssertionError(service.process.communicate()[1]) from None
    return service.process.returncode, err
