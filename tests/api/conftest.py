"""Running ``plan`` in this process and as one of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from shardwright.api.cli import run

BASE_PLAN = (
    "simulate", "--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64",
    "--seq-len", "1024", "--tp", "2", "--pp", "2", "--shard", "zero2", "--json", "-",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """How a command line ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def plan(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """``plan`` in this process: fast, and the same code from the arguments on."""

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


def plan_process(
    *arguments: str, cwd: Path | None = None, timeout: float = 50, **environment: str
) -> Result:
    """``plan`` as a person starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "shardwright.api.cli", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout,
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def process() -> Callable[..., Result]:
    return plan_process


@pytest.fixture(scope="session")
def base_report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The document of a simulation, which holds a legal plan for 8 H100."""
    target = tmp_path_factory.mktemp("base") / "report.json"
    assert run((*BASE_PLAN[:-1], str(target))) == 0
    return json.loads(target.read_text())


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
        """Process numbers of its children, from /proc."""
        found = set()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(fields[1]) == self.process.pid and fields[0] != "Z":
                found.add(int(path.parent.name))
        return found


def _start_service(folder: Path, *arguments: str) -> Service:
    """Start ``plan serve`` on a free port and wait until it can compute."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shardwright.api.cli", "serve", "--port", "0", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    service = Service(url=line.split()[2], process=process)
    ends_s = time.monotonic() + 40
    while time.monotonic() < ends_s:
        if httpx.get(service.url + "/readyz", timeout=5).status_code == 200:
            return service
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the service was not ready in time")


def _stop_service(service: Service) -> tuple[int, str]:
    """Press Ctrl-C; exit code and what the service wrote to its error output."""
    service.process.send_signal(signal.SIGINT)
    _, err = service.process.communicate(timeout=20)
    return service.process.returncode, err


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of a process; it must end without a word of complaint."""
    running = _start_service(tmp_path_factory.mktemp("service"))
    yield running
    assert _stop_service(running) == (0, "")


@pytest.fixture
def start_service() -> Callable[..., Service]:
    return _start_service


@pytest.fixture
def stop_service() -> Callable[[Service], tuple[int, str]]:
    return _stop_service
