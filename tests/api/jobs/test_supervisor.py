"""Workers that are stopped, stuck or end: each is replaced."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from shardwright.api.server.jobs.workers import supervisor
from shardwright.api.server.jobs.workers.supervisor import WorkerSupervisor

STOPPED = "import os, signal; os.write(1, b'b'); os.kill(os.getpid(), signal.SIGSTOP)"
STARTING = "import os, time; [(os.write(1, b'.'), time.sleep(0.1)) for _ in range(1000)]"
WELL = "import os, time; [(os.write(1, b'b'), time.sleep(0.1)) for _ in range(1000)]"


def _restarts(monkeypatch: pytest.MonkeyPatch, program: str, seconds: float) -> int:
    """How often a worker was replaced."""

    async def spawn(self: WorkerSupervisor) -> Any:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", program, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    async def run() -> int:
        supervised = WorkerSupervisor("", 1)
        supervised.start()
        ends_s = asyncio.get_running_loop().time() + seconds
        while not supervised.restarts and asyncio.get_running_loop().time() < ends_s:
            await asyncio.sleep(0.05)
        await supervised.close()
        return supervised.restarts

    monkeypatch.setattr(WorkerSupervisor, "_spawn", spawn)
    monkeypatch.setattr(supervisor, "SILENT_S", 0.8)
    monkeypatch.setattr(supervisor, "RETRY_S", 0.1)
    return asyncio.run(run())


def test_a_worker_that_is_stopped_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _restarts(monkeypatch, STOPPED, 10.0)


@pytest.mark.parametrize("program", [STARTING, WELL])
def test_one_that_says_something_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    assert not _restarts(monkeypatch, program, 2.5)
