"""Pool of waiting children, replaced when they fail or wear out.

Each request has a child to itself. A departed client, an exceeded limit or a crash ends the child,
never the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ..lifeline import kill_group
from .child import met_own_limit

CHILD_MODULE = "shardwright.api.server.compute.child"
START_S = 60.0
JOBS_PER_CHILD, MAX_WORK_S = 5000, 120.0
"""Requests, and seconds at work, after which a child that is well is replaced all the same.

To start one takes as long as hundreds of small requests.
"""
INHERITED_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "XDG_DATA_HOME", "LANG", "LC_ALL", "TMPDIR")
RETRY_S = 1.0
END_S = 0.25
"""So long a child that closed its pipes may take to end."""


def child_environment() -> dict[str, str]:
    """Environment of a child: few of the service's own variables."""
    environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return environment | {
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A thread reserves address space, which is limited.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


class PoolBusyError(Exception):
    """No free child: the queue is full, or none came in time."""

    def __init__(self, full: bool) -> None:
        super().__init__("full" if full else "late")
        self.full = full


class NoAnswerError(Exception):
    """The child did not answer.

    ``reason`` is ``late``, ``limits`` (its own) or ``lost`` (it was killed or crashed, twice).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ShuttingDownError(Exception):
    """The service is shutting down and answers nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Pool sizes: children, and requests that may wait for one."""

    children: int = 2
    waiting: int = 16


class _ChildProcess:
    """Child process with its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.jobs = 0
        self.worked_s = 0.0

    async def call(self, header: Mapping[str, object], body: bytes) -> tuple[int, bytes]:
        """Send a request and wait for its answer."""
        if self.process.stdin is None:
            raise ConnectionError
        self.jobs += 1
        start_s = time.monotonic()
        line = json.dumps({**header, "length": len(body)}).encode() + b"\n"
        self.process.stdin.write(line + body)
        await self.process.stdin.drain()
        answer = await self.receive()
        self.worked_s += time.monotonic() - start_s
        return answer

    @property
    def needs_replacing(self) -> bool:
        """True if another child should replace it."""
        return self.jobs >= JOBS_PER_CHILD or self.worked_s >= MAX_WORK_S

    async def receive(self) -> tuple[int, bytes]:
        """Receive the child's next message."""
        if self.process.stdout is None:
            raise ConnectionError
        line = await self.process.stdout.readline()
        if not line:
            raise ConnectionError
        header = json.loads(line)
        return header["status"], await self.process.stdout.readexactly(header["length"])

    async def end_reason(self) -> str:
        """Why it closed its end of a pipe."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), END_S)
        return "limits" if met_own_limit(self.process.returncode) else "lost"

    def kill(self) -> None:
        """End it at once, with all that it started."""
        # Not process.kill(): that looks whether the child has ended, and where it has, takes the
        # exit status from under the event loop, which then complains.
        if self.process.returncode is None:
            kill_group(self.process.pid)


class ChildPool:
    """Children ready for requests."""

    def __init__(self, limits: PoolLimits | None = None) -> None:
        self.limits = limits or PoolLimits()
        # A None in it wakes one who waits, to learn that the service is ending.
        self._idle: asyncio.Queue[_ChildProcess | None] = asyncio.Queue()
        self._all: set[_ChildProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._ending = asyncio.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="shardwright-serve-")

    @property
    def ready(self) -> bool:
        """True if a child is alive."""
        return any(child.process.returncode is None for child in self._all)

    def start(self) -> None:
        """Begin to start the children; returns at once."""
        for _ in range(self.limits.children):
            self._replace()

    async def call(
        self,
        operation: str,
        body: bytes,
        limit_s: float,
        cpu_s: float,
        lent: Mapping[str, object] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer.

        A child that ended by no limit of its own costs no request: another one is asked, once.

        Args:
            operation: to apply to the body.
            body: as received.
            limit_s: seconds in all, waiting for a child included.
            cpu_s: processor seconds that the child may use.
            lent: the requester's calibrations that were looked up.

        Raises:
            PoolBusyError: no child was free in time.
            NoAnswerError: a child met a limit or took longer than ``limit_s``, or two ended.
            ShuttingDownError: the service is shutting down.
        """
        ends_s = time.monotonic() + limit_s
        header: dict[str, object] = {"operation": operation, "cpu_s": cpu_s, "lent": lent}
        for last in (False, True):
            try:
                return await self._call_once(header, body, max(0.1, ends_s - time.monotonic()))
            except NoAnswerError as error:
                if last or error.reason != "lost":
                    raise
        raise AssertionError

    async def _call_once(
        self, header: Mapping[str, object], body: bytes, limit_s: float
    ) -> tuple[int, bytes]:
        start_s = time.monotonic()
        child = await self._take(limit_s)
        left_s = max(0.1, limit_s - (time.monotonic() - start_s))
        healthy = False
        try:
            call = child.call({**header, "limit_s": left_s * 0.9}, body)
            answer = await asyncio.wait_for(call, left_s)
            healthy = not child.needs_replacing
            return answer
        except TimeoutError:
            raise NoAnswerError("late") from None
        except (OSError, asyncio.IncompleteReadError, ValueError):
            if self._ending.is_set():
                raise ShuttingDownError from None
            raise NoAnswerError(await child.end_reason()) from None
        finally:
            self._give_back(child, healthy)

    async def _take(self, limit_s: float) -> _ChildProcess:
        if self._idle.empty() and self._waiting >= self.limits.waiting:
            raise PoolBusyError(full=True)
        self._waiting += 1
        try:
            return await asyncio.wait_for(self._next_idle(), limit_s)
        except TimeoutError:
            raise PoolBusyError(full=False) from None
        finally:
            self._waiting -= 1

    async def _next_idle(self) -> _ChildProcess:
        while not self._ending.is_set():
            child = await self._idle.get()
            if child is not None and child.process.returncode is None:
                return child
            if child is not None:
                self._all.discard(child)
                self._replace()
        self._idle.put_nowait(None)  # the next one who waits learns it, too
        raise ShuttingDownError

    def _give_back(self, child: _ChildProcess, healthy: bool) -> None:
        if healthy and not self._ending.is_set():
            self._idle.put_nowait(child)
            return
        child.kill()
        self._all.discard(child)
        self._replace()

    def _replace(self) -> None:
        if self._ending.is_set():
            return
        task = asyncio.create_task(self._spawn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _spawn(self) -> None:
        """Start a child and offer it once ready; retry on failure."""
        while not self._ending.is_set():
            child: _ChildProcess | None = None
            try:
                child = _ChildProcess(await self._process())
                self._all.add(child)
                if self._ending.is_set():
                    child.kill()
                await asyncio.wait_for(child.receive(), START_S)
                self._idle.put_nowait(child)
                return
            except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
                if child is not None:
                    child.kill()
                    self._all.discard(child)
                    await child.process.wait()
                if not self._ending.is_set():
                    await asyncio.sleep(RETRY_S)

    async def _process(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            CHILD_MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=child_environment(),
            cwd=self._folder.name,
            start_new_session=True,  # Ctrl-C is the service's to handle
            limit=2**16,
        )

    async def close(self) -> None:
        """End all children; waiting requests get ShuttingDownError. Idempotent."""
        self._ending.set()
        self._idle.put_nowait(None)
        for child in (children := tuple(self._all)):
            child.kill()
        # Not cancelled: a process that is just being started would be nobody's.
        await asyncio.gather(*self._tasks, *(child.process.wait() for child in children))
        self._all.clear()
        self._folder.cleanup()
