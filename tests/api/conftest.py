"""Running ``plan`` in this process and as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runner.order import SERVICE, together
from service import services

from shardwright.api.cli.main import run

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
        assert self.out, f"exit code {self.code}: {self.err}"
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
        [sys.executable, "-m", "shardwright.api.cli.main", *arguments],
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


SERVING = pytest.StashKey[ExitStack]()


@pytest.fixture(scope="session")
def service(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[services.Service]:
    """One service for all tests of a process; it must end without a word of complaint."""
    running = services.start_service(tmp_path_factory.mktemp("service"))
    with ExitStack() as serving:
        serving.callback(_stopped, running)
        pytestconfig.stash[SERVING] = serving
        yield running


def _stopped(running: services.Service) -> None:
    assert services.stop_service(running) == (0, "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """The service ends with the last of its tests: its workers look for jobs all the time."""
    result = yield
    was_last = nextitem is None or together(nextitem.nodeid) != SERVICE
    if was_last and (serving := item.config.stash.get(SERVING, None)):
        serving.close()
    return result


@pytest.fixture
def start_service() -> Callable[..., services.Service]:
    return services.start_service


@pytest.fixture
def stop_service() -> Callable[[services.Service], tuple[int, str]]:
    return services.stop_service
