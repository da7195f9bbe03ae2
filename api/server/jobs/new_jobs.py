"""New jobs, stored in few statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from .database import StoreError
from .schema import JOBS, SHORT_COLUMNS, DbRow, now_ms


class KeyUsedError(Exception):
    """An idempotency key that came with another body before."""


class QuotaError(Exception):
    """The owner has as many open jobs as allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be stored.

    ``given_plan`` is the plan that the body refers to, ``given_calibration`` the owner's
    calibration that it names, both as of then; ``request_id`` is the request's.
    """

    id: str
    owner: str
    kind: str
    body: str
    fingerprint: str
    deadline_s: float
    idempotency_key: str | None = None
    given_plan: str | None = None
    given_calibration: str | None = None
    request_id: str | None = None


AddResult = tuple[DbRow, bool] | KeyUsedError | QuotaError


class JobAdder:
    """Adder of jobs within a caller's transaction.

    Its statements are built once: for a wide row, building one takes as long as running it.
    """

    def __init__(self, dialect: str) -> None:
        insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(JOBS)
        self._insert = insert.on_conflict_do_nothing(
            index_elements=[JOBS.c.owner, JOBS.c.kind, JOBS.c.idempotency_key]
        ).returning(*SHORT_COLUMNS)
        self._open_counts = (
            sa.select(JOBS.c.owner, sa.func.count())
            .where(
                JOBS.c.owner.in_(sa.bindparam("owners", expanding=True)), JOBS.c.outcome.is_(None)
            )
            .group_by(JOBS.c.owner)
        )

    def add(self, connection: sa.Connection, jobs: Sequence[NewJob], quota: int) -> list[AddResult]:
        """Store jobs at the end of their owners' lines; see :meth:`store.JobStore.add`.

        Raises:
            StoreError: a job with a key disappeared meanwhile; sent again, it is a new one.
        """
        if not jobs:
            return []
        created_ms = now_ms()
        fresh = {"created_ms": created_ms, "attempt": 0, "released": 0, "place": created_ms}
        values = [{**asdict(job), **fresh, "piece": 0, "running": 0} for job in jobs]
        rows = {row.id: row for row in connection.execute(self._insert, values)}
        refused = self._over_quota(connection, [job for job in jobs if job.id in rows], quota)
        keys = {_key(job) for job in jobs if job.id in refused}
        results: list[AddResult] = []
        for job in jobs:
            if job.id in refused:
                results.append(QuotaError())
            elif job.id not in rows:
                results.append(_earlier(connection, job, refused=_key(job) in keys))
            else:
                results.append((rows[job.id], True))
        return results

    def _over_quota(
        self, connection: sa.Connection, added: Sequence[NewJob], quota: int
    ) -> set[str]:
        """Drop each owner's last jobs over the quota; return their ids."""
        if not added:
            return set()
        owners = sorted({job.owner for job in added})
        counts: list[Any] = list(connection.execute(self._open_counts, {"owners": owners}))
        excess = Counter({owner: count - quota for owner, count in counts})
        refused = set()
        for job in reversed(added):
            if excess[job.owner] > 0:
                excess[job.owner] -= 1
                refused.add(job.id)
        if refused:
            connection.execute(sa.delete(JOBS).where(JOBS.c.id.in_(refused)))
        return refused


def _key(job: NewJob) -> tuple[str, str, str | None]:
    return job.owner, job.kind, job.idempotency_key


def _earlier(connection: sa.Connection, job: NewJob, refused: bool) -> AddResult:
    """Return the earlier job of the same key."""
    query = sa.select(*SHORT_COLUMNS, JOBS.c.fingerprint).where(
        JOBS.c.owner == job.owner,
        JOBS.c.kind == job.kind,
        JOBS.c.idempotency_key == job.idempotency_key,
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        if refused:
            return QuotaError()
        raise StoreError("an earlier job went away")
    return (row, False) if row.fingerprint == job.fingerprint else KeyUsedError()
