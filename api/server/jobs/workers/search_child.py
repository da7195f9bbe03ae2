"""A worker's limited child: one job at a time, interruptible.

The program is :mod:`child`, with the same limits as the immediate children. An interrupted child
answers with its best plan so far or is killed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...compute.child import met_own_limit
from ...compute.pool import CHILD_MODULE, START_S, child_environment
from ...lifeline import kill_group
from ...logs import log_child_fault

if TYPE_CHECKING:
    from ...compute.progress_events import EmitEvent

KILL_GRACE_S = 0.25
"""Seconds for a search that is stopped to tell its best plan, before it is killed."""
OVERTIME_S = 1.0
"""Seconds after its deadline in which a search may still write its answer."""
LEAST_S = 1.0
"""A second try has what the first left of the deadline, and no less."""
JOBS_PER_CHILD = 200
POLL_S = 0.1
"""How often it is looked whether someone cancelled."""


class ChildLostError(Exception):
    """Child ended without an answer.

    ``reason`` is ``cancelled``, ``late``, ``limits`` (its own), ``killed`` (from outside, twice) or
    ``crashed`` (twice).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildMessage:
    """A child's message: an answer with a status, or an event."""

    status: int | None
    event: str | None
    body: bytes


class SearchChild:
    """Child process, started ahead and replaced when it ends."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shardwright-job-")
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._done = 0
        self._buffer = bytearray()

    def start(self) -> None:
        """Start the process, unless it runs; it warms up meanwhile."""
        if self._process is not None and self._process.poll() is None:
            return
        self._ready, self._done = False, 0
        self._buffer.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", CHILD_MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            cwd=self._folder.name,
            start_new_session=True,
            bufsize=0,
        )

    def run(
        self,
        operation: str,
        body: bytes,
        limit_s: float,
        emit: EmitEvent,
        is_cancelled: Callable[[], bool],
        lent: Mapping[str, object],
    ) -> tuple[int, bytes, bool]:
        """Run one job, and once more where the child ended by no limit of its own.

        Args:
            operation: to apply to the body.
            body: of the request.
            limit_s: its deadline, in seconds from now.
            emit: called with every event's name and JSON.
            is_cancelled: polled for a cancellation.
            lent: the job's calibration.

        Returns:
            Status and JSON of the answer, and True if canceled.

        Raises:
            ChildLostError: there is no answer.
        """
        begun_s = time.monotonic()
        send = partial(self._send, operation, body, lent)
        try:
            return self._run_once(send, limit_s, emit, is_cancelled)
        except ChildLostError as lost:
            if lost.reason not in ("killed", "crashed"):
                raise
        left_s = max(LEAST_S, limit_s - (time.monotonic() - begun_s))
        return self._run_once(send, left_s, emit, is_cancelled)

    def _run_once(
        self,
        send: Callable[[float], None],
        limit_s: float,
        emit: EmitEvent,
        is_cancelled: Callable[[], bool],
    ) -> tuple[int, bytes, bool]:
        self.start()
        cancelled = False
        try:
            self._await_ready(is_cancelled)
            send(limit_s)
            ends_s = time.monotonic() + limit_s + OVERTIME_S
            killed_s = float("inf")
            while True:
                message = self._next(POLL_S)
                if message is not None and message.status is not None:
                    self._done += 1
                    if self._done >= JOBS_PER_CHILD:
                        self.kill()
                    return message.status, message.body, cancelled
                if message is not None and message.event is not None:
                    emit(message.event, message.body)
                now_s = time.monotonic()
                if now_s > killed_s:
                    raise ChildLostError("cancelled" if cancelled else "late")
                if killed_s == float("inf"):
                    cancelled = is_cancelled()
                    if cancelled or now_s > ends_s:
                        self._interrupt()
                        killed_s = now_s + KILL_GRACE_S
        except (OSError, EOFError, ValueError) as error:
            reason = "crashed" if isinstance(error, ValueError) else self._end_reason()
            self.kill()
            raise ChildLostError("cancelled" if cancelled else reason) from None
        except BaseException:
            self.kill()
            raise
        finally:
            self.start()  # ready for the next one, if it ended

    def _await_ready(self, is_cancelled: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + START_S
        while not self._ready:
            if self._next(POLL_S) is not None:
                self._ready = True
            elif is_cancelled():
                raise ChildLostError("cancelled")
            elif time.monotonic() > ends_s:
                raise ChildLostError("late")

    def _send(
        self, operation: str, body: bytes, lent: Mapping[str, object], limit_s: float
    ) -> None:
        header = {
            "operation": operation,
            "limit_s": limit_s,
            "cpu_s": limit_s + 10,
            "length": len(body),
            "events": True,
            "lent": lent,
        }
        if self._process is None or self._process.stdin is None:
            raise EOFError
        view = memoryview(json.dumps(header).encode() + b"\n" + body)
        while view:
            view = view[self._process.stdin.write(view) or 0 :]

    def _next(self, timeout_s: float) -> ChildMessage | None:
        """The next whole message, or None on timeout.

        Raises:
            EOFError: the child ended.
        """
        if self._process is None or self._process.stdout is None:
            raise EOFError
        ends_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while (message := self._parsed()) is None:
                left_s = ends_s - time.monotonic()
                if left_s <= 0 or not ready.select(left_s):
                    return None
                read = os.read(self._process.stdout.fileno(), 2**18)
                if not read:
                    self._process.wait()
                    raise EOFError
                self._buffer += read
        return message

    def _parsed(self) -> ChildMessage | None:
        head, newline, _ = self._buffer.partition(b"\n")
        if not newline:
            return None
        header = json.loads(head)
        start, size = len(head) + 1, header["length"]
        if len(self._buffer) < start + size:
            return None
        log_child_fault(header)
        body = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return ChildMessage(status=header.get("status"), event=header.get("event"), body=body)

    def _interrupt(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def _end_reason(self) -> str:
        """Why the child closed its end of a pipe."""
        if self._process is None:
            return "crashed"
        try:
            exit_code = self._process.wait(KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            return "crashed"
        if met_own_limit(exit_code):
            return "limits"
        return "killed" if exit_code == -signal.SIGKILL else "crashed"

    def kill(self) -> None:
        """End it at once, with all that it started."""
        if self._process is None:
            return
        if self._process.poll() is None:
            kill_group(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
