"""Bytes that jobs take of their owner's room, and what of an ended job is dropped.

A job counts with what came with it and what was found for it, its events among that, and as much
again as its rows and their indexes take beside. When it ends, what nobody reads any more goes: the
plan that was given with it, and its body, unless that is of a plan that was found, whose views and
later questions read it, or is as short as a list shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from .schema import JOBS, STREAMS

ROW_BYTES = 8192
"""Beside its texts: its row, the library's, and their places in eight indexes."""
LISTED_BODY = 4000
"""Characters of a body that a list of jobs looks into."""
DROPPED_BODY = "{}"
NEW_TEXTS = ("body", "given_plan", "given_calibration")
_EVENTS = (
    sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(STREAMS.c.value)), 0))
    .where(STREAMS.c.workflow_uuid == JOBS.c.id)
    .scalar_subquery()
)


def new_job_bytes(texts: Mapping[str, Any]) -> int:
    """What a new job takes, by its columns."""
    return ROW_BYTES + sum(len(texts[name] or "") for name in NEW_TEXTS)


def ended_values(
    found: sa.ColumnElement[bool] | bool, answer_bytes: sa.ColumnElement[int] | int
) -> dict[str, Any]:
    """Values of a job that ends: less text, and what that takes.

    ``found``: whether its answer is one, and no problem.
    """
    known = sa.literal(found) if isinstance(found, bool) else found
    is_short = sa.func.length(JOBS.c.body) <= LISTED_BODY
    is_read = sa.and_(JOBS.c.kind == "plan", sa.or_(known, is_short))
    body = sa.case((is_read, JOBS.c.body), else_=DROPPED_BODY)
    texts = sa.func.length(body) + _length(JOBS.c.given_calibration) + _length(JOBS.c.best)
    return {
        "body": body,
        "given_plan": None,
        "kept_bytes": texts + answer_bytes + ROW_BYTES + _EVENTS,
    }


def trim_ended(connection: sa.Connection) -> None:
    """Drop what jobs keep that ended under a version that kept all of it."""
    ended = sa.and_(JOBS.c.kept_bytes.is_(None), JOBS.c.outcome.is_not(None))
    found = sa.func.coalesce(sa.and_(JOBS.c.status == 200, JOBS.c.answer.is_not(None)), sa.false())
    values = ended_values(found, _length(JOBS.c.answer))
    connection.execute(sa.update(JOBS).where(ended).values(**values))


def _length(text: sa.Column[Any]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.length(text), 0)
