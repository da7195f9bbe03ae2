"""Turns of owners: each has a bounded number of jobs with the library at once.

The library takes jobs in the order in which they came to it. Others wait in their owner's line, and
one follows as soon as one of its owner has ended or given its worker back, so owners take turns.
Where an owner may have fewer jobs there than there are workers, one is always left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sqlalchemy as sa

from .schema import JOBS, DbRow

EnqueueJob = Callable[[sa.Connection, str, str, int], object]
"""Puts a job of an id, a kind and a piece number on the library's queue, in a transaction."""
OPEN = JOBS.c.outcome.is_(None)
HELD = sa.and_(OPEN, JOBS.c.released == 0)


class Turns:
    """Release of waiting jobs to the library.

    ``window``: most jobs of an owner that are with it; None: all.
    """

    def __init__(self, enqueue: EnqueueJob, window: int | None = None) -> None:
        self._enqueue, self._window = enqueue, window

    def release(self, connection: sa.Connection, owners: Iterable[str]) -> None:
        """Release the first jobs in these owners' lines, as many as may be."""
        for owner in owners:
            for row in self._next(connection, owner):
                mine = sa.update(JOBS).where(JOBS.c.id == row.id, JOBS.c.released == 0)
                if connection.execute(mine.values(released=1)).rowcount:
                    self._enqueue(connection, row.id, row.kind, row.piece or 0)

    def waiting(self, connection: sa.Connection) -> list[str]:
        """Owners of jobs that are not with the library, in order."""
        held = sa.select(JOBS.c.owner).where(HELD).distinct().order_by(JOBS.c.owner)
        return list(connection.execute(held).scalars())

    def _next(self, connection: sa.Connection, owner: str) -> list[DbRow]:
        line = sa.select(JOBS.c.id, JOBS.c.kind, JOBS.c.piece).where(JOBS.c.owner == owner, HELD)
        line = line.order_by(JOBS.c.place, JOBS.c.id)
        if self._window is not None:
            there = sa.select(sa.func.count()).where(
                JOBS.c.owner == owner, OPEN, sa.func.coalesce(JOBS.c.released, 1) == 1
            )
            room = self._window - (connection.execute(there).scalar() or 0)
            if room <= 0:
                return []
            line = line.limit(room)
        return list(connection.execute(line))
