"""Requests to the ranks of a run: stop after a step, or pause between two.

All ranks act after the same step. A rank with a request announces it in the world's store before it
joins the step's global norm, and every rank looks there after the step. No norm is complete before
all ranks have joined it, so what one rank announced, every rank finds; and no rank is in a
collective while it pauses.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .progress import PROGRESS

WAIT_S = 0.05
STOP, PAUSE = "stop", "pause"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Store(Protocol):
    """Keys that all ranks share, such as torch's stores."""

    def check(self, keys: list[str], /) -> bool:
        """True if every key is set."""

    def get(self, key: str, /) -> bytes:
        """Value of a key that is set."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> Any:
        """Set a key if its value is ``expected``; empty for one that is not set."""


class StepRequests:
    """Requests to this process, from signals or its launcher.

    ``stop``: name of the signal. ``paused``, ``continued``: numbers of the latest pause and
    continuation. ``handled``: requests that all ranks have acted on, the same number on each.
    """

    __slots__ = ("continued", "handled", "paused", "stop")

    def __init__(self) -> None:
        self.stop = ""
        self.paused = self.continued = self.handled = 0

    def receive(self, message: Mapping[str, Any]) -> None:
        """Note a launcher's message: stop, pause or continue."""
        if message["type"] == STOP:
            self.stop = message["signal"]
        elif message["type"] == PAUSE:
            self.paused = message["id"]
        else:
            self.continued = message["id"]

    def begin(self) -> None:
        """Begin a job; a stop was meant for an earlier one."""
        self.stop = ""

    @property
    def pending(self) -> str:
        """The request to announce; empty without one."""
        if self.stop:
            return f"{STOP} {self.stop}"
        return f"{PAUSE} {self.paused}" if self.paused > self.continued else ""


REQUESTS = StepRequests()
"""Requests to this process."""


@dataclass(frozen=True, slots=True)
class AgreedRequest:
    """What all ranks do after a step: ``stop`` with a signal's name, or ``pause`` with a number."""

    kind: str
    value: str


class StepAgreement:
    """Agreement of all ranks on requests, by a store."""

    def __init__(self, store: Store, requests: StepRequests = REQUESTS) -> None:
        self._store, self._requests = store, requests

    def announce(self, step: int) -> None:
        """Announce this rank's request, if any, before the global norm of a step."""
        if pending := self._requests.pending:
            self._store.compare_set(self._key, "", f"{step} {pending}")

    def look(self, step: int) -> AgreedRequest | None:
        """The request that all ranks act on after this step."""
        if not self._store.check([self._key]):
            return None
        announced, kind, value = self._store.get(self._key).decode().split()
        if int(announced) > step:  # of a rank that has begun the next step
            return None
        self._requests.handled += 1
        return AgreedRequest(kind, value)

    def pause(self, number: int) -> None:
        """Wait until the launcher continues pause ``number``, or stops the run."""
        before = PROGRESS.where
        PROGRESS.mark("a pause between two steps")
        while self._requests.continued < number and not self._requests.stop:
            time.sleep(WAIT_S)
            PROGRESS.tick()
        PROGRESS.mark(before)

    @property
    def _key(self) -> str:
        return f"request {self._requests.handled}"


@contextlib.contextmanager
def stopped_by_signals(requests: StepRequests = REQUESTS) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop this rank's run after a step; a second one ends it at once."""

    def request(number: int, frame: object) -> None:
        requests.stop = signal.Signals(number).name
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
