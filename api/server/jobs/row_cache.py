"""Cache of sweep rows by a hash of all their inputs.

Those are the plan, the change, its pricing, the versions of this package and of its prices, every
profile and calibration stored on this machine, and the content of the one that its owner stored
over HTTP: a new measurement makes new rows.
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
from ...problem.stored_calibrations import calibration_folder
from .database import store_errors
from .ids import digest
from .schema import CACHE, now_ms


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
