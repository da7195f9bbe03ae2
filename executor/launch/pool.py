"""Worker pool: start local ranks, give them jobs, end them on failure.

Workers outlive jobs, because starting one costs seconds and a job often less. A job is a function
``package.module:name`` that every rank calls with a context and a JSON payload; its result is JSON.
Nothing here imports torch.

A rank that dies, raises, stops answering or waits in vain ends the pool within seconds: all ranks
are killed and one RunError names the rank and the cause. Workers always end with their launcher.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ...spec.errors import RunError, ShardwrightError
from ...spec.plan.plan import Plan
from ...spec.temporary_folder import TemporaryFolder
from ..groups.rank_layout import CPU_DEVICE, plan_device, plan_world_size, stage_layout
from .channel import Message
from .process import WorkerProcess, rank_environment
from .run_signals import STOPPING, RunSignals
from .step_requests import PAUSE, STOP
from .timeouts import CPU_TIMEOUTS, Timeouts, device_timeouts, plan_timeouts
from .watchdog import NCCL_TIMEOUT, Failure, Report, Watchdog, late_report

POLL_S = 0.2
MAX_GAP_S = 2.0
"""Longest time between two looks at the ranks that counts."""
SETTLE_S = 1.0
CLOSE_S = 5.0
TRAIN_JOB = "shardwright.executor.train.job:train"

OnEvent = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Limits in seconds, and the packages of jobs.

    ``collective_timeout_s``: wait in a collective. ``silent_after_s``: a working rank without a
    heartbeat. ``stalled_after_s``: all ranks without work or progress; None for slightly more than
    ``collective_timeout_s``. ``missing_after_s``: a joining rank without a sign of life.
    ``start_timeout_s``: until every rank has loaded its libraries and joined. ``job_packages``:
    packages whose functions may be jobs. ``environment``: added to the workers'.
    """

    collective_timeout_s: float = CPU_TIMEOUTS.collective_s
    silent_after_s: float = CPU_TIMEOUTS.silent_s
    stalled_after_s: float | None = None
    missing_after_s: float = CPU_TIMEOUTS.join_s
    start_timeout_s: float = 180.0
    job_packages: tuple[str, ...] = ("shardwright",)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_timeouts(cls, timeouts: Timeouts) -> PoolOptions:
        """These limits, with defaults for the rest."""
        return cls(
            collective_timeout_s=timeouts.collective_s,
            silent_after_s=timeouts.silent_s,
            stalled_after_s=timeouts.stalled_s,
            missing_after_s=timeouts.join_s,
        )


class _RelayedError(ShardwrightError):
    """A user's mistake found by a worker: message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WorkerPool:
    """Local ranks that take jobs one after another.

    Args:
        device: catalog name of a rank's device; ``cpu`` for a core.
    """

    def __init__(
        self, ranks: int, device: str = CPU_DEVICE, options: PoolOptions | None = None
    ) -> None:
        self.ranks = ranks
        self.options = options or PoolOptions.from_timeouts(device_timeouts(device))
        stalled_s = self.options.stalled_after_s or self.options.collective_timeout_s + 10.0
        silent_s, missing_s = self.options.silent_after_s, self.options.missing_after_s
        self._watchdog = Watchdog(ranks, silent_s, stalled_s, missing_s)
        self._folder = TemporaryFolder("shardwright-ranks-")
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerProcess] = []
        self._ready = self._closed = False
        self._polled_s = time.monotonic()
        self._skipped_s = 0.0
        self._watchdog.begin("starting", "starting", self._polled_s)
        self._jobs = self._pauses = 0
        self._is_stopping = False
        try:
            for rank in range(ranks):
                self._start(rank, device)
        except BaseException:
            self.kill()
            raise

    def _start(self, rank: int, device: str) -> None:
        folder = self._folder.path
        arguments = ["--pool", str(folder / "store"), "--device", device]
        arguments += ["--timeout", str(self.options.collective_timeout_s)]
        arguments += ["--allow", ",".join(self.options.job_packages)]
        environment = {**rank_environment(rank, self.ranks), **self.options.environment}
        worker = WorkerProcess(rank, arguments, environment, folder)
        self._workers.append(worker)
        self._selector.register(worker.receiver.descriptor, selectors.EVENT_READ, rank)

    @property
    def pids(self) -> list[int]:
        """Process numbers by rank."""
        return [worker.pid for worker in self._workers]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()

    def run(
        self,
        job: str,
        payload: Any,
        timeout_s: float | None = None,
        on_event: OnEvent | None = None,
        peers: Sequence[Sequence[int]] = (),
        signals: RunSignals | None = None,
    ) -> list[Any]:
        """Every rank's result of a job.

        Args:
            job: ``package.module:function`` of an allowed package.
            payload: JSON-ready argument, the same for every rank.
            timeout_s: limit of the whole job.
            on_event: called with rank and event.
            peers: ranks with equal work; a note names one that delays the others.
            signals: of a run, which stop it after a step, and suspend it between two.

        Raises:
            RunError: a rank died, raised, stopped answering or waited in vain; the pool is gone
                then.
            ShardwrightError: a mistake in the payload that a rank found.
        """
        if self._closed:
            raise RunError("the ranks of this pool have ended")
        try:
            self._await_ready(signals)
            self._is_stopping = False
            return self._run(job, payload, timeout_s, on_event, peers, signals)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, signals: RunSignals | None) -> None:
        if self._ready:
            return
        limit_s = self.options.start_timeout_s
        deadline_s = self._now_s() + limit_s
        while any(state.state == "starting" for state in self._watchdog.states):
            self._poll(None, None, None)
            self._raise_if_broken()
            self._obey(signals, None)
            self._check_joining()
            if self._now_s() > deadline_s:
                missing = [n for n, s in enumerate(self._watchdog.states) if s.state == "starting"]
                raise RunError(f"ranks {missing} were not ready within {limit_s:.0f} s")
        self._ready = True

    def _check_joining(self) -> None:
        now_s = time.monotonic()
        for rank, worker in enumerate(self._workers):
            self._watchdog.note_cpu(rank, now_s, worker.busy_s())
        if self._watchdog.missing(now_s):
            raise _error(self._diagnose())

    def _run(
        self,
        job: str,
        payload: Any,
        timeout_s: float | None,
        on_event: OnEvent | None,
        peers: Sequence[Sequence[int]],
        signals: RunSignals | None,
    ) -> list[Any]:
        self._jobs += 1
        self._watchdog.begin("running", job, time.monotonic())
        self._send_all({"type": "run", "id": self._jobs, "job": job, "payload": payload})
        results: dict[int, Any] = {}
        deadline_s = None if timeout_s is None else self._now_s() + timeout_s
        while len(results) < self.ranks:
            self._poll(self._jobs, results, on_event)
            self._raise_if_broken()
            self._obey(signals, on_event)
            if on_event is not None:
                for text in self._watchdog.new_stragglers(peers):
                    on_event(0, {"event": "note", "text": text})
            now_s = time.monotonic()
            if self._watchdog.silent(now_s) or self._watchdog.stalled(now_s):
                raise _error(self._diagnose())
            if deadline_s is not None and self._now_s() > deadline_s:
                raise RunError(f"the job took more than {timeout_s:g} s; {self._where()}")
        return [results[rank] for rank in range(self.ranks)]

    def _send_all(self, message: Message) -> None:
        for worker in self._workers:
            with contextlib.suppress(OSError):  # it is gone or stopped: the watch will say so
                worker.sender.send(message)

    def _obey(self, signals: RunSignals | None, on_event: OnEvent | None) -> None:
        """Hand stops and suspensions on to the ranks."""
        if signals is None:
            return
        if signals.take_suspension():
            self._pauses += 1
            self._send_all({"type": PAUSE, "id": self._pauses})
            before_s = time.monotonic()
            signals.suspend()
            self._send_all({"type": "continue", "id": self._pauses})
            self._skip(time.monotonic() - before_s)
        if signals.stop is not None and not self._is_stopping:
            self._is_stopping = True
            self._send_all({"type": STOP, "signal": signals.stop.name})
            if on_event is not None:
                on_event(0, {"event": "note", "text": STOPPING})

    def _now_s(self) -> float:
        """Monotonic seconds, without those in which this process was stopped."""
        return time.monotonic() - self._skipped_s

    def _skip(self, gap_s: float) -> None:
        self._skipped_s += gap_s
        self._watchdog.skip_gap(gap_s)
        self._polled_s = time.monotonic()

    def _where(self) -> str:
        return ", ".join(f"rank {n} is in {s.where}" for n, s in enumerate(self._watchdog.states))

    def _poll(
        self, job: int | None, results: dict[int, Any] | None, on_event: OnEvent | None
    ) -> None:
        """Wait a moment for messages and handle them."""
        readable = self._selector.select(POLL_S)
        gap_s = time.monotonic() - self._polled_s - POLL_S
        if gap_s > MAX_GAP_S:  # this process was stopped, or its callback took long
            self._skip(gap_s)
        for key, _ in readable:
            rank = key.data
            messages = self._workers[rank].receiver.receive()
            if messages is None:
                self._selector.unregister(key.fileobj)
                continue
            self._watchdog.heard(rank, time.monotonic())
            for message in messages:
                self._handle(rank, message, job, results, on_event)
        self._polled_s = time.monotonic()
        for worker, state in zip(self._workers, self._watchdog.states, strict=True):
            state.ending = worker.ending()
            if state.ending and state.report is None:
                state.report = late_report(worker.error_line(NCCL_TIMEOUT))

    def _handle(
        self,
        rank: int,
        message: Message,
        job: int | None,
        results: dict[int, Any] | None,
        on_event: OnEvent | None,
    ) -> None:
        state, kind = self._watchdog.states[rank], message["type"]
        if kind == "beat":
            self._watchdog.beat(rank, time.monotonic(), message)
        elif kind == "ready":
            state.state = "idle"
        elif kind == "error":
            state.where = message["where"]
            state.report = Report(
                message=message["message"],
                exit_code=message["exit_code"],
                communication=message["communication"],
                plain=message["plain"],
            )
        elif message.get("id") == job:
            if kind == "result" and results is not None:
                results[rank] = message["result"]
                state.state = "done"
            elif kind == "event" and on_event is not None:
                on_event(rank, message["event"])

    def _raise_if_broken(self) -> None:
        if not self._watchdog.broken():
            return
        settled_s = time.monotonic() + SETTLE_S
        while not self._watchdog.has_root_cause() and time.monotonic() < settled_s:
            self._poll(None, None, None)
        raise _error(self._diagnose())

    def _diagnose(self) -> Failure:
        for worker, state in zip(self._workers, self._watchdog.states, strict=True):
            state.stopped = worker.is_stopped()
            state.error_tail = worker.error_tail()
        return self._watchdog.diagnose(time.monotonic())

    def close(self) -> None:
        """Let the workers exit, and kill those that do not."""
        if self._closed:
            return
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.sender.send({"type": "exit"})
        deadline_s = time.monotonic() + CLOSE_S
        for worker in self._workers:
            worker.wait(max(0.0, deadline_s - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Kill all workers at once and clean up."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.kill()
            worker.close()
        self._selector.close()
        self._folder.close()


def _error(failure: Failure) -> ShardwrightError:
    if failure.exit_code == RunError.exit_code:
        return RunError(failure.message)
    return _RelayedError(failure.message, failure.exit_code)


def run_plan(
    plan: Plan,
    payload: Mapping[str, Any],
    on_event: OnEvent | None = None,
    options: PoolOptions | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Train a plan on local ranks; return rank 0's job result.

    Args:
        plan: a legal plan.
        payload: the train job's settings; see ``executor.train.job``.
        on_event: called with rank and event; rank 0 reports every step. After the first, Ctrl-C
            and SIGTERM stop the run after a step, and the result says so.
        options: limits; by default those of ``timeouts`` for the plan.
        timeout_s: limit of the whole run.

    Raises:
        RunError: the run failed.
        ShardwrightError: an input that only the ranks could check was bad.
    """
    limits = options or PoolOptions.from_timeouts(plan_timeouts(plan))
    with WorkerPool(plan_world_size(plan), plan_device(plan), limits) as pool:
        document = {**payload, "plan": plan.to_document()}
        peers = [range(first, first + count) for first, count in stage_layout(plan)]
        result: dict[str, Any]
        with RunSignals() as signals:

            def relay(rank: int, event: dict[str, Any]) -> None:
                signals.has_stepped |= event.get("event") == "step"
                if on_event is not None:
                    on_event(rank, event)

            result = pool.run(TRAIN_JOB, document, timeout_s, relay, peers, signals)[0]
        return result
