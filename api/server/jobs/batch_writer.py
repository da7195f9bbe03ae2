"""New jobs written in batches, one transaction each.

A disk takes several milliseconds to commit a transaction, for one job as for fifty.
"""

from __future__ import annotations

import asyncio
import logging

from ..logs import log_event
from .database import StoreError
from .new_jobs import AddResult, NewJob, Quota
from .schema import DbRow
from .store import JobStore

MAX_BATCH = 64


class BatchWriter:
    """Writer of new jobs."""

    def __init__(self, store: JobStore, quota: Quota) -> None:
        self._store, self._quota = store, quota
        self._waiting: list[tuple[NewJob, asyncio.Future[AddResult]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, job: NewJob) -> tuple[DbRow, bool]:
        """Store a job, which is queued in its owner's turn.

        Returns:
            Its row, and True if it is new.

        Raises:
            KeyUsedError: its key came with another body.
            QuotaError: too many jobs of its owner are open.
            RoomError: they keep too much.
            StoreError: the database cannot be written now.
        """
        done: asyncio.Future[AddResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        added = await done
        if isinstance(added, Exception):
            raise added
        return added

    async def _write(self) -> None:
        while self._waiting:
            some, self._waiting = (
                self._waiting[:MAX_BATCH],
                self._waiting[MAX_BATCH:],
            )
            # In one order everywhere: two services that write the same keys never wait in a ring.
            some.sort(key=lambda one: (one[0].owner, one[0].kind, one[0].idempotency_key or ""))
            jobs = [job for job, _ in some]
            try:
                results = await asyncio.to_thread(self._store.add, jobs, self._quota)
            except StoreError as error:
                self._resolve(some, [error] * len(some))
            except Exception as error:  # a fault of ours: who waits behind is not held up by it
                log_event("jobs not written", logging.ERROR, error=type(error).__name__)
                self._resolve(some, [StoreError("ended")] * len(some))
            except BaseException:
                some, self._waiting = some + self._waiting, []
                self._resolve(some, [StoreError("ended")] * len(some))
                raise
            else:
                self._resolve(some, results)

    def _resolve(
        self,
        some: list[tuple[NewJob, asyncio.Future[AddResult]]],
        results: list[AddResult] | list[StoreError],
    ) -> None:
        for (_, done), added in zip(some, results, strict=True):
            if done.done():  # the client went away
                continue
            if isinstance(added, StoreError):
                done.set_exception(added)
            else:
                done.set_result(added)
