"""Supervision of workers: started, watched, restarted.

A worker says on its standard output that it lives. One that falls silent, stopped or stuck, is
killed and replaced like one that ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys

from ...compute.pool import child_environment
from ...lifeline import kill_group
from ...logs import Level, log_event

WORKER_MODULE = "shardwright.api.server.jobs.workers.worker"
RETRY_S = 1.0
STABLE_S = 10.0
"""A worker that lived so long is replaced at once."""
LAUNCH_S, SILENT_S = 60.0, 15.0
"""A worker that says nothing for so long, at its start and at work, is killed."""
STARTING, BEATING = b".", b"b"
"""What a worker says: that it starts or waits for the database, and that its heart beats."""


class WorkerSupervisor:
    """Worker processes."""

    def __init__(
        self,
        url: str,
        workers: int,
        may_execute: bool = False,
        log: Level = "error",
        window: int | None = None,
    ) -> None:
        self._workers = workers
        given = {"db": url, "execute": may_execute, "log": log, "window": window}
        self._given = json.dumps(given).encode() + b"\n"
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: set[asyncio.subprocess.Process] = set()
        self._ending = asyncio.Event()
        self.restarts = 0

    def start(self) -> None:
        """Begin to start the workers; returns at once."""
        self._tasks = [asyncio.create_task(self._keep_running()) for _ in range(self._workers)]

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending.is_set():
            start_s = loop.time()
            try:
                process = await self._spawn()
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            self._processes.add(process)
            if self._ending.is_set():
                process.kill()
            await _ended(process)
            self._processes.discard(process)
            if self._ending.is_set():
                return
            self.restarts += 1
            log_event("worker restarted", restarts=self.restarts)
            if loop.time() - start_s < STABLE_S:
                await asyncio.sleep(RETRY_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            WORKER_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**child_environment(), **_database_variables()},
            start_new_session=True,
        )
        if process.stdin is not None:
            # It may hold a password, and all users of the machine may read arguments.
            process.stdin.write(self._given)
            with contextlib.suppress(OSError):
                await process.stdin.drain()
        return process

    async def close(self) -> None:
        """End the workers; others redo their jobs. Idempotent."""
        self._ending.set()
        for process in tuple(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for task in self._tasks:
            if not self._processes and not task.done():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait until a worker has ended; kill it once it is silent."""
    silent_s, silences = LAUNCH_S, 0
    while process.stdout is not None and silences < 2:
        try:
            said = await asyncio.wait_for(process.stdout.read(4096), silent_s / 2)
        except TimeoutError:
            silences += 1  # the second one counts: at the first it may be us who were stopped
            continue
        if not said:
            break
        silences, silent_s = 0, SILENT_S if said.endswith(BEATING) else LAUNCH_S
    if silences == 2 and process.returncode is None:
        log_event("worker killed", logging.ERROR, reason="silent")
        kill_group(process.pid)
    await process.wait()


def _database_variables() -> dict[str, str]:
    """PostgreSQL's environment variables, for incomplete URLs."""
    return {name: value for name, value in os.environ.items() if name.startswith("PG")}
