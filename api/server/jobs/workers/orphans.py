"""Begun jobs that no living worker works on, put back on the queue or ended.

The library marks a job as begun before it begins: where the database fails between the two, as on a
full disk, the job is nobody's while its worker lives on. The same holds where a dead worker's jobs
could not all be put back. A job whose entry the library gave up, as one that was changed into a
pickle, is ended as failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from ...problems import encode, problem
from ..database import store_errors
from ..ids import ID_LENGTH
from ..schema import JOBS, SLOTS, WORKFLOWS, DbRow
from ..store import JobStore
from .slots import executor_id

LOOK_S = 2.0
GIVEN_UP = ("ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
GIVEN_UP_DETAIL = "the job's entry in the database cannot be read: it was changed or is damaged"
ORPHAN_S = 4.0
"""A job that was nobody's for so long is put back; the library takes milliseconds to begin one."""


class OrphanedJobs:
    """Watch of a worker over begun jobs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._since_s: dict[tuple[str, str], float] = {}
        self._looked_s = 0.0

    @contextmanager
    def running(self, job_id: str) -> Iterator[None]:
        """Mark a job as one that this worker works on."""
        with self._lock:
            self._running.add(job_id)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(job_id)

    def requeue(self, library: Any, slot: int) -> None:
        """Put orphaned jobs back on the queue; looks every few seconds at most.

        Args:
            library: that runs the jobs.
            slot: this worker's.

        Raises:
            StoreError: the database cannot be read.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s, before = now_s, self._since_s
        self._end_given_up()
        self._store.release_waiting()
        found = {(row.executor_id, row.workflow_uuid): row for row in self._orphans(slot)}
        self._since_s = {key: before.get(key, now_s) for key in found}
        for key, row in found.items():
            if now_s - self._since_s[key] < ORPHAN_S:
                continue
            with store_errors():
                if row.executor_id == executor_id(slot):
                    library.resume_workflow(row.workflow_uuid, queue_name=row.queue_name)
                else:  # not resumed by its name: another worker may have put it back just now
                    library._recover_pending_workflows([row.executor_id])

    def _end_given_up(self) -> None:
        """End jobs that the library gave up, whichever piece of their work it was."""
        own = sa.func.substr(WORKFLOWS.c.workflow_uuid, 1, ID_LENGTH)
        given_up = sa.select(own).where(WORKFLOWS.c.status.in_(GIVEN_UP))
        ended = sa.select(JOBS.c.id).where(JOBS.c.outcome.is_(None), JOBS.c.id.in_(given_up))
        with store_errors(), self._store.engine.connect() as connection:
            job_ids = connection.execute(ended).scalars().all()
        answer = encode(problem(500, GIVEN_UP_DETAIL)).decode()
        for job_id in job_ids:
            self._store.finish(job_id, "failed", 500, answer)

    def _orphans(self, slot: int) -> list[DbRow]:
        begun = sa.select(
            WORKFLOWS.c.workflow_uuid, WORKFLOWS.c.executor_id, WORKFLOWS.c.queue_name
        )
        begun = begun.where(WORKFLOWS.c.status == "PENDING")
        with store_errors(), self._store.engine.connect() as connection:
            slots = set(connection.execute(sa.select(SLOTS.c.slot)).scalars())
            rows = connection.execute(begun).all()
        living = {executor_id(number) for number in slots | {slot}} - {executor_id(slot)}
        with self._lock:
            running = set(self._running)
        return [
            row for row in rows
            if row.executor_id not in living and row.workflow_uuid not in running
        ]  # fmt: skip
