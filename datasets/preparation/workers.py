"""Processes that do the tasks of a preparation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from ...spec.errors import InputError, RunError
from .tasks import Job, perform

MODULE = "shardwright.datasets.preparation.worker"


def refusal(error: InputError) -> dict[str, Any]:
    """An InputError as JSON."""
    texts = [None if x is None else str(x) for x in (error.given, error.nearest)]
    return {"field": error.field, "value": texts[0], "allowed": error.allowed, "nearest": texts[1]}


def refused(answer: Mapping[str, Any]) -> InputError:
    """The InputError of JSON."""
    value, nearest = answer["value"], answer["nearest"]
    return InputError(answer["field"], value, answer["allowed"], nearest)


class Workers:
    """Processes that take tasks in turn; one alone does them in this process.

    Args:
        job: what is prepared.
        jobs: processes.
        stages_at: ``module:NAME`` of the tuple of stages, for other processes.
    """

    def __init__(self, job: Job, jobs: int, stages_at: str) -> None:
        self._job = job
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._processes = []
        for _ in range(jobs if jobs > 1 else 0):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, stages_at],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            self._send(process, job.document())
            self._idle.put(process)

    def do(self, tasks: Iterable[Mapping[str, Any]], on_done: Callable[[], None]) -> None:
        """Do all tasks.

        Raises:
            InputError: what a task read cannot be used.
            RunError: a process was lost.
        """
        if not self._processes:
            for task in tasks:
                perform(self._job, task)
                on_done()
            return
        with ThreadPoolExecutor(len(self._processes)) as threads:
            for _ in threads.map(self._one, tasks):
                on_done()

    def _one(self, task: Mapping[str, Any]) -> None:
        process = self._idle.get()
        try:
            self._send(process, task)
            line = process.stdout.readline() if process.stdout else ""
        finally:
            self._idle.put(process)
        if not line:
            raise RunError(f"a process that prepared data ended (exit code {process.wait()})")
        answer = json.loads(line)
        if answer.get("refused"):
            raise refused(answer["refused"])
        if answer.get("failed"):
            raise RunError(answer["failed"])

    def _send(self, process: subprocess.Popen[str], message: Mapping[str, Any]) -> None:
        try:
            if process.stdin is not None:
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
        except BrokenPipeError:
            raise RunError("a process that prepared data ended") from None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            if error is not None:
                process.terminate()
            process.wait()
