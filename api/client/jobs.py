"""Service jobs: submitted, watched, canceled, awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

from ...spec.errors import RunError
from .errors import error_of
from .transport import Event, Transport

JobKind = Literal["plan", "what-if", "size", "run"]
PATHS: dict[JobKind, str] = {
    "plan": "/v1/plans",
    "what-if": "/v1/what-ifs",
    "size": "/v1/sizes",
    "run": "/v1/runs",
}
FINAL_STATES = ("done", "failed", "cancelled")
CANCEL_GRACE_S = 15.0
"""Seconds that a cancelled job gets to end: searches take half a second, runs ten."""
POLL_S = 0.1
Result = TypeVar("Result")
ReadResult = Callable[[Mapping[str, Any]], Result]
"""Makes a result of a job's document."""


class Job(Generic[Result]):
    """A job of a service, which runs whether anybody waits or not.

    Args:
        transport: to the service.
        kind: plan, what-if, size or run.
        document: of the job, as last read.
        read: makes its result from its answer.
        body: of the request, if known, for error messages.
    """

    def __init__(
        self,
        transport: Transport,
        kind: JobKind,
        document: Mapping[str, Any],
        read: ReadResult[Result],
        body: Mapping[str, Any] | None = None,
    ) -> None:
        self._transport, self._read, self._body = transport, read, body
        self.kind: JobKind = kind
        self.document = document

    @property
    def id(self) -> str:
        """Id at the service; ``client.job(id)`` finds it again."""
        return str(self.document["id"])

    @property
    def state(self) -> str:
        """queued, running, done, failed or cancelled, as last read."""
        return str(self.document["state"])

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """Candidates and seconds, as last read."""
        return self.document.get("progress")

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best plan so far with its gap, as last read."""
        return self.document.get("best")

    @property
    def path(self) -> str:
        """Its path at the service."""
        return f"{PATHS[self.kind]}/{self.id}"

    def refresh(self) -> Job[Result]:
        """Refresh in place and return the same job."""
        self.document = self._transport.get(self.path)
        return self

    def events(self, after: str | None = None) -> Iterator[Event]:
        """Yield events ``(name, data, id)`` until it is done.

        A broken connection resumes where it stopped.

        Args:
            after: the id of the last event already seen.
        """
        return self._transport.events(f"{self.path}/events", after)

    def cancel(self) -> Job[Result]:
        """Cancel the job; its best answer so far is kept."""
        self._transport.delete(self.path)
        return self.refresh()

    def forget(self) -> None:
        """Drop the job, if it has ended, with its answer; one that has not is cancelled."""
        self._transport.delete(self.path, {"forget": "true"})

    def wait(
        self, timeout_s: float | None = None, on_event: Callable[[Event], None] | None = None
    ) -> Result:
        """Wait for the result; Ctrl-C cancels and returns the best.

        Args:
            timeout_s: limit of the wait; the job goes on.
            on_event: called with every event.

        Raises:
            InputError: the question cannot be answered.
            InfeasibleError: nothing fits.
            RunError: it failed, or has not ended in time.
            KeyboardInterrupt: Ctrl-C before there was any result.
        """
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            if ends_s is None and self.state not in FINAL_STATES:
                for event in self.events():
                    if on_event is not None:
                        on_event(event)
            self._await_end(ends_s, on_event)
        except KeyboardInterrupt:
            return self._interrupted()
        return self.result()

    def _await_end(self, ends_s: float | None, on_event: Callable[[Event], None] | None) -> None:
        last_event = None
        while self.refresh().state not in FINAL_STATES:
            if ends_s is not None and time.monotonic() > ends_s:
                raise RunError(f"job {self.id} is {self.state} still; it goes on: wait() again")
            if on_event is not None and self.progress != last_event:
                last_event = self.progress
                on_event(Event("progress", dict(last_event or {}), ""))
            time.sleep(POLL_S)

    def _interrupted(self) -> Result:
        self.cancel()
        self._await_end(time.monotonic() + CANCEL_GRACE_S, None)
        if self.document.get("answer") is None and self.best is None:
            raise KeyboardInterrupt
        return self._read(self.document)

    def result(self) -> Result:
        """Return the result of an ended job, or its best so far.

        Raises:
            ShardwrightError: it has none.
        """
        if self.state not in FINAL_STATES:
            raise RunError(f"job {self.id} is {self.state}; wait() gives its result")
        if "answer" not in self.document:  # of a list, which tells less
            self.refresh()
        problem = self.document.get("problem")
        if problem is not None:
            raise error_of(problem, self._body)
        if self.document.get("answer") is None and self.document.get("best") is None:
            raise RunError(f"job {self.id} was cancelled before it had found anything")
        return self._read(self.document)

    def __repr__(self) -> str:
        seconds = (self.progress or {}).get("seconds")
        after = "" if seconds is None else f" after {seconds:g} s"
        return f"<Job {self.kind} {self.id}: {self.state}{after}>"
