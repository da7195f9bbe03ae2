"""One reader of the database for everyone who waits for jobs.

While anyone waits, the database is queried every ``POLL_S`` for all awaited jobs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from .database import StoreError
from .schema import DbRow
from .store import JobOutcome, JobStore

POLL_S = 0.05


@dataclass(eq=False, slots=True)
class JobListener:
    """Listener to a job.

    ``events`` are those received, in order; None ends them. ``outcome`` is set when it ends.
    """

    job_id: str
    next_offset: int | None = None
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

    def listen(self, job_id: str, next_offset: int | None = None) -> JobListener:
        """Listen for a job's end, and its events from an offset on."""
        listener = JobListener(job_id=job_id, next_offset=next_offset)
        self._listeners.add(listener)
        self._has_listeners.set()
        return listener

    def leave(self, listener: JobListener) -> None:
        """Stop listening."""
        self._listeners.discard(listener)

    @property
    def count(self) -> int:
        """Count the listeners."""
        return len(self._listeners)

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
        offsets: dict[str, int] = {}
        for listener in listeners:
            if listener.next_offset is not None:
                offsets[listener.job_id] = min(
                    listener.next_offset, offsets.get(listener.job_id, listener.next_offset)
                )
        rows: list[DbRow] = []
        names = sorted(offsets)
        full = False
        for start in range(0, len(names), 200):
            part_of = {name: offsets[name] for name in names[start : start + 200]}
            some = await asyncio.to_thread(self._store.events, part_of)
            full = full or len(some) >= 1000
            rows += some
        for listener in listeners:
            self._deliver(listener, rows, outcomes, full)

    def _deliver(
        self,
        listener: JobListener,
        rows: list[DbRow],
        outcomes: dict[str, JobOutcome | None],
        full: bool,
    ) -> None:
        before = len(listener.events)
        for row in rows:
            if (
                listener.next_offset is not None
                and row.workflow_uuid == listener.job_id
                and row.offset >= listener.next_offset
            ):
                listener.events.append(row)
                listener.next_offset = row.offset + 1
        # The end was read before the events, so that all events of an ended job are here; unless
        # there were more than one reading takes.
        if listener.job_id not in outcomes:
            listener.job_gone = True
        elif not full:
            listener.outcome = outcomes[listener.job_id]
        if len(listener.events) > before or listener.outcome is not None or listener.job_gone:
            listener.changed.set()

    async def close(self) -> None:
        """Wake all listeners, and stop reading."""
        self.ending = True
        for listener in self._listeners:
            listener.changed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
