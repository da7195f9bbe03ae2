"""One reader of the database for everyone who waits for jobs.

While anyone waits, the database is queried every ``POLL_S`` for all awaited jobs. A listener is
read no further ahead than ``MAX_UNSENT`` events, so that a job of many events delays no other's,
and a client that does not read costs no more memory.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from .database import StoreError
from .schema import DbRow
from .store import JobOutcome, JobStore

POLL_S = 0.05
MAX_UNSENT = 50
"""Events of one listener that wait to be sent."""


@dataclass(eq=False, slots=True)
class JobListener:
    """Listener to a job.

    ``events`` are those received, in order; None ends them. ``outcome`` is set when it ends.
    """

    job_id: str
    next_offset: int | None = None
    owner: str = ""
    outcome: JobOutcome | None = None
    job_gone: bool = False
    events: list[DbRow] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class JobWatcher:
    """Reader for all listeners."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._listeners: set[JobListener] = set()
        self._has_listeners = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ending = False

    def start(self) -> None:
        """Read once someone listens."""
        self._task = asyncio.create_task(self._poll_forever())

    def listen(self, job_id: str, next_offset: int | None = None, owner: str = "") -> JobListener:
        """Listen for a job's end, and its events from an offset on."""
        listener = JobListener(job_id=job_id, next_offset=next_offset, owner=owner)
        self._listeners.add(listener)
        self._has_listeners.set()
        return listener

    def leave(self, listener: JobListener) -> None:
        """Stop listening."""
        self._listeners.discard(listener)

    def streams(self, owner: str | None = None) -> int:
        """Count the listeners to events, of all or of one owner."""
        return sum(
            listener.next_offset is not None and owner in (None, listener.owner)
            for listener in self._listeners
        )

    async def _poll_forever(self) -> None:
        while True:
            if not self._listeners:
                self._has_listeners.clear()
                await self._has_listeners.wait()
            listeners = [listener for listener in self._listeners if listener.outcome is None]
            try:
                if listeners:
                    await self._poll(listeners)
            except StoreError:
                await asyncio.sleep(1.0)
            await asyncio.sleep(POLL_S)

    async def _poll(self, listeners: list[JobListener]) -> None:
        jobs = sorted({listener.job_id for listener in listeners})
        outcomes: dict[str, JobOutcome | None] = {}
        for start in range(0, len(jobs), 500):
            part = await asyncio.to_thread(self._store.outcomes, jobs[start : start + 500])
            outcomes |= part
        ready = [listener for listener in listeners if len(listener.events) < MAX_UNSENT]
        rows = await self._new_events(ready)
        for listener in ready:
            self._deliver(listener, rows[listener.job_id], outcomes)

    async def _new_events(self, listeners: list[JobListener]) -> dict[str, list[DbRow]]:
        """Read the next events of listeners, by job."""
        wanted = {
            (listener.job_id, listener.next_offset)
            for listener in listeners
            if listener.next_offset is not None
        }
        places, rows = sorted(wanted), defaultdict[str, list[DbRow]](list)
        for start in range(0, len(places), 100):
            part = places[start : start + 100]
            for row in await asyncio.to_thread(self._store.events, part, MAX_UNSENT):
                rows[row.workflow_uuid].append(row)
        return rows

    def _deliver(
        self,
        listener: JobListener,
        rows: list[DbRow],
        outcomes: dict[str, JobOutcome | None],
    ) -> None:
        new: list[DbRow] = []
        for row in rows:
            if row.offset == listener.next_offset and len(new) < MAX_UNSENT:
                new.append(row)
                listener.next_offset = row.offset + 1
        listener.events += new
        # The end was read before the events, so that all events of an ended job are here; unless
        # there were more than one reading takes.
        if listener.job_id not in outcomes:
            listener.job_gone = True
        elif len(new) < MAX_UNSENT:
            listener.outcome = outcomes[listener.job_id]
        if new or listener.outcome is not None or listener.job_gone:
            listener.changed.set()

    async def close(self) -> None:
        """Wake all listeners, and stop reading."""
        self.ending = True
        for listener in self._listeners:
            listener.changed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
