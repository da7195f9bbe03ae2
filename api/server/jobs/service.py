"""Jobs as the routes use them: accepted, awaited, listed, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

import sqlalchemy as sa

from ....spec.limits import MAX_STORED_BYTES
from ..compute.requests import DEADLINE_S
from ..logs import Level
from .batch_writer import BatchWriter
from .database import StoreError, open_engine, store_errors
from .ids import digest, follow_id, id_ms, new_id
from .library_queue import LibraryQueue, library_client, workflow_id
from .new_jobs import NewJob, Quota
from .profiles import ProfileStore
from .readiness import JobReadiness
from .recent import RecentDocuments
from .schema import CACHE, DbRow, now_ms
from .steady_clock import SteadyClock
from .store import JobStore
from .turns import Turns
from .watcher import JobWatcher
from .workers.slots import WorkerSlots
from .workers.supervisor import WorkerSupervisor

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """Location and limits of jobs.

    ``quota``: open jobs per token; ``stored_bytes``: what all its jobs keep; ``kept_days``: after
    which ended ones are deleted; ``profiles``: stored calibrations per token; ``profile_days``:
    after which unused ones are deleted; ``may_execute``: whether plans are run on this machine;
    ``log``: level of the workers' events; ``window``: most jobs of a token that workers have before
    them at once; None: all.
    """

    url: str
    workers: int = 2
    quota: int = 100
    stored_bytes: int = MAX_STORED_BYTES
    kept_days: float = 30.0
    profiles: int = 100
    profile_days: float = 365.0
    forget_interval_s: float = 600.0
    may_execute: bool = False
    log: Level = "error"
    window: int | None = None


class JobService:
    """Jobs of one service."""

    def __init__(self, rules: JobRules) -> None:
        self.rules = rules
        self._engine = open_engine(rules.url)
        self._client = library_client(rules.url)
        self.store = JobStore(self._engine, Turns(LibraryQueue(self._client), rules.window))
        self.profiles = ProfileStore(self._engine)
        self._batch_writer = BatchWriter(self.store, Quota(rules.quota, rules.stored_bytes))
        self.readiness = JobReadiness(self._engine, WorkerSlots(self._engine))
        self.watcher = JobWatcher(self.store)
        self.supervisor = WorkerSupervisor(
            rules.url, rules.workers, rules.may_execute, rules.log, rules.window
        )
        self.recent = RecentDocuments()
        self._clock: SteadyClock | None = None
        self._forget_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start working; the database is ready."""
        with contextlib.suppress(StoreError):
            follow_id(self.store.newest_id())
        self.supervisor.start()
        self.watcher.start()
        self._forget_task = asyncio.create_task(self._forget_loop())

    async def submit(
        self,
        owner: str,
        kind: str,
        checked: bytes,
        key: str | None,
        given_plan: str | None,
        request_id: str | None = None,
    ) -> tuple[DbRow, bool]:
        """Store and queue a job.

        ``checked`` is a child's verdict on the body: a line of JSON, then the body. ``key`` is the
        sender's, so that a request sent twice is one job.

        Returns:
            The job's row and True if it is new.
        """
        head, _, body = checked.partition(b"\n")
        facts = json.loads(head)
        job = NewJob(
            id=new_id(),
            owner=owner,
            kind=kind,
            body=body.decode("ascii"),
            fingerprint=digest(kind, body),
            deadline_s=facts["deadline_s"] or DEADLINE_S,
            idempotency_key=key,
            given_plan=given_plan,
            given_calibration=facts["calibration"],
            request_id=request_id,
        )
        return await self._batch_writer.add(job)

    async def wait(self, job_id: str, seconds: float) -> None:
        """Wait for a job's end, a timeout or the service's stop."""
        listener = self.watcher.listen(job_id)
        ends_s = asyncio.get_running_loop().time() + seconds
        try:
            while listener.outcome is None and not listener.job_gone and not self.watcher.ending:
                listener.changed.clear()
                left_s = ends_s - asyncio.get_running_loop().time()
                await asyncio.wait_for(listener.changed.wait(), max(0.0, left_s))
        except TimeoutError:
            return
        finally:
            self.watcher.leave(listener)

    async def row(self, owner: str, kind: str, job_id: str) -> tuple[DbRow | None, str | None]:
        """Return a job with its last event; None for others' jobs."""

        def read() -> tuple[DbRow | None, str | None]:
            row = self.store.get(owner, kind, job_id)
            event = None if row is None else self.store.last_event(job_id)
            return row, None if event is None else str(event.value)

        return await asyncio.to_thread(read)

    async def submitted(self, job_id: str) -> DbRow:
        """Return the ``body`` and ``given_calibration`` of a job."""
        return await asyncio.to_thread(self.store.submitted, job_id)

    async def _forget_loop(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                if await asyncio.to_thread(self._forget):
                    self.recent.clear()
            await asyncio.sleep(self.rules.forget_interval_s)

    def _forget(self) -> bool:
        """Delete old entries; return True if there were such jobs."""
        if self._clock is None:
            # Where even the newest job seems old, the clock may be wrong.
            newest_ms = id_ms(self.store.newest_id())
            idle_ms = now_ms() - newest_ms if newest_ms else 0
            self._clock = SteadyClock(idle_ms > max(1.0, self.rules.kept_days) * DAY_MS)
        if not self._clock.is_steady():
            return False
        before_ms = now_ms() - int(self.rules.kept_days * DAY_MS)
        some = False
        while old := self.store.old(before_ms):
            some = True
            self._drop(old)
        self.profiles.forget(now_ms() - int(self.rules.profile_days * DAY_MS))
        with store_errors(), self._engine.begin() as connection:
            connection.execute(sa.delete(CACHE).where(CACHE.c.made_ms < before_ms))
        return some

    def _drop(self, ended: list[tuple[str, int]]) -> None:
        """Delete jobs, each with its number of pieces but the first."""
        with store_errors():
            names = [workflow_id(i, n) for i, pieces in ended for n in range(pieces + 1)]
            self._client.delete_workflows(names)
        self.store.forget([job_id for job_id, _ in ended])

    async def forget(self, job_id: str) -> None:
        """Delete an ended job."""

        def drop() -> None:
            self._drop([(job_id, self.store.pieces_done(job_id))])

        await asyncio.to_thread(drop)
        self.recent.clear()

    async def close(self) -> None:
        """End the workers and all waiting."""
        if self._forget_task is not None:
            self._forget_task.cancel()
            await asyncio.gather(self._forget_task, return_exceptions=True)
        await self.watcher.close()
        await self.supervisor.close()
        await asyncio.to_thread(self._client.destroy)
        self._engine.dispose()
