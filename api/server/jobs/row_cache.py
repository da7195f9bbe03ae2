"""Cache of sweep rows by a hash of all their inputs.

Those are the plan, the change, its pricing, the versions of this package and of its prices, every
profile and calibration stored on this machine, and the content of the one that its owner stored
over HTTP: a new measurement makes new rows. The oldest go where all take too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from .... import __version__
from ....costmodel.pricing.version import PRICING_VERSION
from ....profiler.store.profiles import profile_folder
from ....spec.limits import MAX_CACHED_BYTES
from ...problem.stored_calibrations import calibration_folder
from .database import store_errors
from .ids import digest
from .schema import CACHE, now_ms

TRIM_BYTES = MAX_CACHED_BYTES // 8
"""A worker that has kept so much more looks what all take."""


def row_key(question: dict[str, Any], measured: str) -> str:
    """The key of a row.

    ``question`` is the body of a what-if with one value, without its deadline; ``measured`` is of
    :func:`measured_digest`.
    """
    question_text = json.dumps(question, sort_keys=True)
    versions = __version__, f"pricing {PRICING_VERSION}"
    return digest("what-if", *versions, measured, question_text)


def measured_digest(calibration: str | None = None) -> str:
    """Hash measurements and calibrations of this machine and upload."""
    parts: list[bytes | str] = [calibration or ""]
    for file in _files():
        try:
            parts += [file.name, file.read_bytes()]
        except OSError:  # it went away just now
            continue
    return digest(*parts)


def _files() -> Iterator[Path]:
    for folder in (profile_folder(), calibration_folder()):
        yield from sorted(folder.glob("*.json"))


class RowCache:
    """Cached rows in the jobs' database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        postgres = engine.dialect.name == "postgresql"
        self._insert = postgresql.insert if postgres else sqlite.insert
        self._put_bytes = TRIM_BYTES  # what others before it kept is not known

    def get(self, key: str) -> str | None:
        """Get a row, if cached."""
        query = sa.select(CACHE.c.value).where(CACHE.c.key == key)
        with store_errors(), self._engine.connect() as connection:
            value = connection.execute(query).scalar_one_or_none()
            return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Store a row; equal keys have equal rows."""
        insert: Any = self._insert(CACHE).values(key=key, value=value, made_ms=now_ms())
        with store_errors(), self._engine.begin() as connection:
            connection.execute(insert.on_conflict_do_nothing(index_elements=[CACHE.c.key]))
            self._put_bytes += len(value)
            if self._put_bytes >= TRIM_BYTES:
                connection.execute(_beyond(MAX_CACHED_BYTES))
                self._put_bytes = 0


def _beyond(most_bytes: int) -> sa.Delete:
    """Delete the oldest rows, so that the others take so much at most."""
    newest_first = (CACHE.c.made_ms.desc(), CACHE.c.key)
    taken = sa.func.sum(sa.func.length(CACHE.c.value)).over(order_by=newest_first)
    rows = sa.select(CACHE.c.key, taken.label("taken")).subquery()
    return sa.delete(CACHE).where(
        CACHE.c.key.in_(sa.select(rows.c.key).where(rows.c.taken > most_bytes))
    )
