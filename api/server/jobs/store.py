"""The store of jobs: each change one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import sqlalchemy as sa

from .database import store_errors
from .ids import follow_id
from .kept_bytes import LISTED_BODY, ended_values
from .new_jobs import AddResult, JobAdder, NewJob, Quota
from .schema import JOBS, PIECES, SHORT_COLUMNS, STREAMS, DbRow, now_ms
from .turns import Turns

JobOutcome = Literal["done", "failed", "cancelled"]
EVENTS_STREAM = "events"
"""The key of a job's durable stream."""
NEWEST_ID = sa.select(sa.func.max(JOBS.c.id))
ATTEMPT_COLUMNS = (
    "owner", "body", "given_plan", "given_calibration", "request_id", "best", "worked_s"
)  # fmt: skip
JSON_NAME = "portable_json"
"""The library's name of the serializer of events."""


class JobStore:
    """Jobs in a database; every method may raise StoreError."""

    def __init__(self, engine: sa.Engine, turns: Turns) -> None:
        self.engine, self._turns = engine, turns
        self._new = JobAdder(engine.dialect.name)

    def add(self, jobs: Sequence[NewJob], quota: Quota) -> list[AddResult]:
        """Store jobs in one transaction, and release what owners' turns allow.

        Args:
            jobs: one or more.
            quota: of one owner.

        Returns:
            For each its row and True if it is new (the same key and body give the same job), or
            KeyUsedError where the key came with another body, QuotaError where too many are open,
            RoomError where too much is kept.
        """
        with store_errors(), self.engine.begin() as connection:
            follow_id(connection.execute(NEWEST_ID).scalar())
            results = self._new.add(connection, jobs, quota)
            self._turns.release(connection, sorted({job.owner for job in jobs}))
            return results

    def newest_id(self) -> str | None:
        """The id that sorts last, if any."""
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(NEWEST_ID).scalar()

    def get(self, owner: str, kind: str, job_id: str) -> DbRow | None:
        """Return a job with its answer; None for others' jobs."""
        submitted = (JOBS.c.body,) if kind == "plan" else ()
        query = sa.select(*SHORT_COLUMNS, *submitted, JOBS.c.answer, JOBS.c.best).where(
            JOBS.c.owner == owner, JOBS.c.kind == kind, JOBS.c.id == job_id
        )
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(query).one_or_none()

    def submitted(self, job_id: str) -> DbRow:
        """Return a job's ``body`` and ``given_calibration``."""
        query = sa.select(JOBS.c.body, JOBS.c.given_calibration).where(JOBS.c.id == job_id)
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(query).one()

    def page(self, owner: str, kind: str, limit: int, before: str | None) -> Sequence[DbRow]:
        """Return an owner's newest jobs, or those before one."""
        short = sa.case((sa.func.length(JOBS.c.body) <= LISTED_BODY, JOBS.c.body))
        query = sa.select(*SHORT_COLUMNS, short.label("body"))
        query = query.where(JOBS.c.owner == owner, JOBS.c.kind == kind)
        if before is not None:
            query = query.where(JOBS.c.id < before)
        query = query.order_by(JOBS.c.id.desc()).limit(limit)
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(query).all()

    def cancel(self, owner: str, kind: str, job_id: str) -> DbRow | None:
        """Request cancellation; a queued job is cancelled at once."""
        mine = (JOBS.c.owner == owner, JOBS.c.kind == kind, JOBS.c.id == job_id)
        open_ones = (*mine, JOBS.c.outcome.is_(None))
        now = _not_before(JOBS.c.created_ms)
        unbegun = sa.update(JOBS).where(*open_ones, JOBS.c.started_ms.is_(None))
        begun = sa.update(JOBS).where(*open_ones, JOBS.c.cancel_ms.is_(None))
        with store_errors(), self.engine.begin() as connection:
            ended = {"outcome": "cancelled", "cancel_ms": now, "finished_ms": now}
            ended |= ended_values(found=False, answer_bytes=0)
            if connection.execute(unbegun.values(**ended)).rowcount == 0:
                connection.execute(begun.values(cancel_ms=now))
            else:
                self._turns.release(connection, [owner])
            query = sa.select(*SHORT_COLUMNS).where(*mine)
            return connection.execute(query).one_or_none()

    def begin(self, job_id: str, piece: int = 0) -> DbRow | None:
        """Begin a piece of a job, counting an attempt; None if it is done or the job has ended."""
        update = (
            sa.update(JOBS)
            .where(
                JOBS.c.id == job_id,
                JOBS.c.outcome.is_(None),
                sa.func.coalesce(JOBS.c.piece, 0) == piece,
            )
            .values(
                running=1,
                attempt=JOBS.c.attempt + 1,
                started_ms=sa.func.coalesce(JOBS.c.started_ms, _not_before(JOBS.c.created_ms)),
            )
            .returning(*SHORT_COLUMNS, *(JOBS.c[name] for name in ATTEMPT_COLUMNS))
        )
        with store_errors(), self.engine.begin() as connection:
            return connection.execute(update).one_or_none()

    def is_cancelled(self, job_id: str) -> bool:
        """Return True if a job was cancelled."""
        query = sa.select(JOBS.c.cancel_ms, JOBS.c.outcome).where(JOBS.c.id == job_id)
        with store_errors(), self.engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        return row is None or row.cancel_ms is not None or row.outcome is not None

    def keep_best(self, job_id: str, best: str) -> None:
        """Store a running job's best plan so far."""
        update = sa.update(JOBS).where(JOBS.c.id == job_id, JOBS.c.outcome.is_(None))
        with store_errors(), self.engine.begin() as connection:
            connection.execute(update.values(best=best))

    def finish(
        self, job_id: str, outcome: JobOutcome, status: int | None, answer: str | None
    ) -> None:
        """Set a job's outcome, once; later calls change nothing."""
        update = sa.update(JOBS).where(JOBS.c.id == job_id, JOBS.c.outcome.is_(None))
        update = update.returning(JOBS.c.owner)
        ended = _not_before(sa.func.coalesce(JOBS.c.started_ms, JOBS.c.created_ms))
        values = {"outcome": outcome, "status": status, "answer": answer, "finished_ms": ended}
        values |= ended_values(status == 200 and answer is not None, len(answer or ""))
        with store_errors(), self.engine.begin() as connection:
            owners = connection.execute(update.values(**values)).scalars().all()
            connection.execute(sa.delete(PIECES).where(PIECES.c.job_id == job_id))
            self._turns.release(connection, owners)

    def release_waiting(self) -> None:
        """Release what owners' ended jobs did not, as where a worker died in the midst."""
        with store_errors(), self.engine.connect() as connection:
            owners = self._turns.waiting(connection)
        if owners:
            with store_errors(), self.engine.begin() as connection:
                self._turns.release(connection, owners)

    def others_wait(self, job_id: str) -> bool:
        """Return True if another open job is not being worked on."""
        others = sa.select(JOBS.c.id).where(
            JOBS.c.id != job_id, JOBS.c.outcome.is_(None), sa.func.coalesce(JOBS.c.running, 0) == 0
        )
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(others.limit(1)).first() is not None

    def pieces(self, job_id: str) -> list[str]:
        """What earlier pieces of an open job's work have found, in order."""
        query = sa.select(PIECES.c.value).where(PIECES.c.job_id == job_id).order_by(PIECES.c.piece)
        with store_errors(), self.engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def give_back(self, job_id: str, piece: int, value: str, worked_s: float) -> None:
        """End a piece of a job's work: it goes to the end of its owner's line.

        ``value``: what the piece has found; ``worked_s``: seconds that all pieces took.
        """
        own = sa.select(JOBS.c.owner).where(JOBS.c.id == job_id).scalar_subquery()
        is_open = JOBS.c.outcome.is_(None)
        line = sa.select(sa.func.max(JOBS.c.place)).where(JOBS.c.owner == own, is_open)
        mine = (JOBS.c.id == job_id, is_open, sa.func.coalesce(JOBS.c.piece, 0) == piece)
        update = sa.update(JOBS).where(*mine).returning(JOBS.c.owner)
        with store_errors(), self.engine.begin() as connection:
            last = connection.execute(line).scalar() or 0
            values = {"piece": piece + 1, "released": 0, "running": 0, "place": last + 1}
            values |= {"worked_s": worked_s, "attempt": JOBS.c.attempt - 1}
            values["kept_bytes"] = JOBS.c.kept_bytes + len(value)
            owners = connection.execute(update.values(**values)).scalars().all()
            if owners:
                found = {"job_id": job_id, "piece": piece, "value": value}
                connection.execute(sa.insert(PIECES).values(**found))
            self._turns.release(connection, owners)

    def write_event(self, job_id: str, value: str) -> None:
        """Append an event to a job's stream; only who works on the job does."""
        mine = sa.and_(STREAMS.c.workflow_uuid == job_id, STREAMS.c.key == EVENTS_STREAM)
        last = sa.select(sa.func.max(STREAMS.c.offset)).where(mine)
        with store_errors(), self.engine.begin() as connection:
            before = connection.execute(last).scalar()
            row = {"workflow_uuid": job_id, "key": EVENTS_STREAM, "value": value, "function_id": 0}
            row |= {"offset": 0 if before is None else before + 1, "serialization": JSON_NAME}
            connection.execute(sa.insert(STREAMS).values(**row))

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, JobOutcome | None]:
        """Return outcomes by job; None for open ones, gone ones missing."""
        query = sa.select(JOBS.c.id, JOBS.c.outcome).where(JOBS.c.id.in_(job_ids))
        with store_errors(), self.engine.connect() as connection:
            return {row.id: row.outcome for row in connection.execute(query)}

    def events(self, places: Sequence[tuple[str, int]], most: int) -> list[DbRow]:
        """Return events of streams: ``(workflow_uuid, offset, value)``.

        Args:
            places: pairs of a job and the offset of the first event to return.
            most: events after each place; more come with the next call.
        """
        conditions = [
            sa.and_(
                STREAMS.c.workflow_uuid == job_id,
                STREAMS.c.offset.between(offset, offset + most - 1),  # they have no gaps
            )
            for job_id, offset in places
        ]
        query = (
            sa.select(STREAMS.c.workflow_uuid, STREAMS.c.offset, STREAMS.c.value)
            .where(STREAMS.c.key == EVENTS_STREAM, sa.or_(*conditions))
            .order_by(STREAMS.c.workflow_uuid, STREAMS.c.offset)
        )
        with store_errors(), self.engine.connect() as connection:
            return list(connection.execute(query))

    def last_event(self, job_id: str) -> DbRow | None:
        """The newest event of a job."""
        query = (
            sa.select(STREAMS.c.offset, STREAMS.c.value)
            .where(STREAMS.c.workflow_uuid == job_id, STREAMS.c.key == EVENTS_STREAM)
            .order_by(STREAMS.c.offset.desc())
            .limit(1)
        )
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(query).one_or_none()

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        state = sa.case(
            (JOBS.c.outcome.is_not(None), JOBS.c.outcome),
            (JOBS.c.started_ms.is_not(None), "running"),
            else_="queued",
        ).label("state")
        query = sa.select(state, sa.func.count()).group_by(state)
        with store_errors(), self.engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def old(self, before_ms: int, most: int = 200) -> list[tuple[str, int]]:
        """Jobs that ended before a time, each with its number of pieces but the first."""
        query = sa.select(JOBS.c.id, JOBS.c.piece).where(JOBS.c.finished_ms < before_ms).limit(most)
        with store_errors(), self.engine.connect() as connection:
            return [(row.id, row.piece or 0) for row in connection.execute(query)]

    def pieces_done(self, job_id: str) -> int:
        """Pieces of a job's work before its last one."""
        query = sa.select(JOBS.c.piece).where(JOBS.c.id == job_id)
        with store_errors(), self.engine.connect() as connection:
            return connection.execute(query).scalar() or 0

    def forget(self, job_ids: Sequence[str]) -> None:
        """Drop jobs."""
        with store_errors(), self.engine.begin() as connection:
            connection.execute(sa.delete(JOBS).where(JOBS.c.id.in_(job_ids)))


def _not_before(earlier: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """The time now, or an earlier one where the clock has gone back behind it."""
    now = now_ms()
    return sa.case((earlier > now, earlier), else_=now)
