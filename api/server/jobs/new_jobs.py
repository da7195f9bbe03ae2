"""New jobs, stored in few statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ....spec.limits import MAX_STORED_BYTES
from .database import StoreError
from .kept_bytes import new_job_bytes
from .schema import JOBS, SHORT_COLUMNS, DbRow, now_ms


class KeyUsedError(Exception):
    """An idempotency key that came with another body before."""


class QuotaError(Exception):
    """The owner has as many open jobs as allowed."""


class RoomError(Exception):
    """The owner's jobs keep as many bytes as allowed; ``kept`` without the one that was refused."""

    def __init__(self, kept: int) -> None:
        super().__init__(kept)
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one owner: open jobs, and bytes of all jobs."""

    open_jobs: int
    stored_bytes: int = MAX_STORED_BYTES


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


AddResult = tuple[DbRow, bool] | KeyUsedError | QuotaError | RoomError


class JobAdder:
    """Adder of jobs within a caller's transaction.

    Its statements are built once: for a wide row, building one takes as long as running it.
    """

    def __init__(self, dialect: str) -> None:
        insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(JOBS)
        self._insert = insert.on_conflict_do_nothing(
            index_elements=[JOBS.c.owner, JOBS.c.kind, JOBS.c.idempotency_key]
        ).returning(*SHORT_COLUMNS)
        theirs = JOBS.c.owner.in_(sa.bindparam("owners", expanding=True))
        counts = sa.select(JOBS.c.owner, sa.func.count()).where(theirs, JOBS.c.outcome.is_(None))
        self._open_counts = counts.group_by(JOBS.c.owner)
        sizes = sa.select(JOBS.c.owner, sa.func.coalesce(sa.func.sum(JOBS.c.kept_bytes), 0))
        self._kept_bytes = sizes.where(theirs).group_by(JOBS.c.owner)

    def add(
        self, connection: sa.Connection, jobs: Sequence[NewJob], quota: Quota
    ) -> list[AddResult]:
        """Store jobs at the end of their owners' lines; see :meth:`store.JobStore.add`.

        Raises:
            StoreError: a job with a key disappeared meanwhile; sent again, it is a new one.
        """
        if not jobs:
            return []
        created_ms = now_ms()
        fresh = {"created_ms": created_ms, "attempt": 0, "released": 0, "place": created_ms}
        fresh |= {"piece": 0, "running": 0}
        texts = [asdict(job) for job in jobs]
        values = [{**each, **fresh, "kept_bytes": new_job_bytes(each)} for each in texts]
        rows = {row.id: row for row in connection.execute(self._insert, values)}
        refused = self._over_quota(connection, [job for job in jobs if job.id in rows], quota)
        keys = {_key(job): refused[job.id] for job in jobs if job.id in refused}
        results: list[AddResult] = []
        for job in jobs:
            if job.id in refused:
                results.append(refused[job.id])
            elif job.id not in rows:
                results.append(_earlier(connection, job, keys.get(_key(job))))
            else:
                results.append((rows[job.id], True))
        return results

    def _over_quota(
        self, connection: sa.Connection, added: Sequence[NewJob], quota: Quota
    ) -> dict[str, QuotaError | RoomError]:
        """Drop jobs beyond their owner's quota, as if they came one by one; return by id why."""
        if not added:
            return {}
        sizes = {job.id: new_job_bytes(asdict(job)) for job in added}
        owners = {"owners": sorted({job.owner for job in added})}
        counts: Any = connection.execute(self._open_counts, owners)
        opened = Counter(dict(tuple(row) for row in counts))
        sums: Any = connection.execute(self._kept_bytes, owners)
        kept = Counter({owner: int(size) for owner, size in sums})
        for job in added:
            opened[job.owner] -= 1
            kept[job.owner] -= sizes[job.id]
        refused: dict[str, QuotaError | RoomError] = {}
        for job in added:
            if opened[job.owner] >= quota.open_jobs:
                refused[job.id] = QuotaError()
            elif kept[job.owner] + sizes[job.id] > quota.stored_bytes:
                refused[job.id] = RoomError(kept[job.owner])
            else:
                opened[job.owner] += 1
                kept[job.owner] += sizes[job.id]
        if refused:
            connection.execute(sa.delete(JOBS).where(JOBS.c.id.in_(refused)))
        return refused


def _key(job: NewJob) -> tuple[str, str, str | None]:
    return job.owner, job.kind, job.idempotency_key


def _earlier(
    connection: sa.Connection, job: NewJob, refused: QuotaError | RoomError | None
) -> AddResult:
    """Return the earlier job of the same key, or why that was ``refused``."""
    query = sa.select(*SHORT_COLUMNS, JOBS.c.fingerprint).where(
        JOBS.c.owner == job.owner,
        JOBS.c.kind == job.kind,
        JOBS.c.idempotency_key == job.idempotency_key,
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        if refused is not None:
            return refused
        raise StoreError("an earlier job went away")
    return (row, False) if row.fingerprint == job.fingerprint else KeyUsedError()
