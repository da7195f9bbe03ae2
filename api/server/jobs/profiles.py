"""Uploaded calibrations in the database, by owner and name.

The fitted calibration is kept, never the table. It replaces an earlier one of its name for the same
device and stack: a name's memory constants and time factors coexist, as with ``plan calibrate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ....spec.cluster.calibration import Calibration
from ....spec.codec import canonical_json, content_hash, from_json
from ...problem.stored_calibrations import calibration_scope, is_current
from .database import StoreError, store_errors
from .new_jobs import QuotaError
from .schema import PROFILES, DbRow, now_ms

CALIBRATION_SOURCE = "a stored calibration"
USED_UPDATE_MS = 3_600_000
"""How often at most it is written down that a calibration was used."""


class OtherScopeError(Exception):
    """A calibration of that name is for another device or stack."""


class ProfileStore:
    """Calibrations in a database; every method may raise StoreError."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def put(
        self, owner: str, fitted: Calibration, of_memory: bool, most: int
    ) -> tuple[Calibration, bool]:
        """Store a calibration fitted to a table, of peaks if ``of_memory``.

        Returns:
            The stored calibration, and True if its name is new.

        Raises:
            OtherScopeError: the name is taken for another device or stack.
            QuotaError: the owner has ``most`` already.
        """
        try:
            return self._put(owner, fitted, of_memory, most)
        except StoreError as error:
            if not isinstance(error.__cause__, sa.exc.IntegrityError):
                raise
            # Another request made the name meanwhile: this one joins it.
            return self._put(owner, fitted, of_memory, most)

    def _put(
        self, owner: str, fitted: Calibration, of_memory: bool, most: int
    ) -> tuple[Calibration, bool]:
        mine = PROFILES.c.owner == owner
        here = sa.and_(mine, PROFILES.c.name == fitted.name)
        with store_errors(), self._engine.begin() as connection:
            # A write first: it holds whoever would change the same calibration until this is done.
            connection.execute(sa.update(PROFILES).where(here).values(used_ms=now_ms()))
            text = connection.execute(sa.select(PROFILES.c.body).where(here)).scalar_one_or_none()
            kept = _merged_calibration(text, fitted, of_memory)
            values = {"hash": content_hash(kept), "body": canonical_json(kept)}
            times = {"created_ms": now_ms(), "used_ms": now_ms()}
            if text is not None:
                connection.execute(sa.update(PROFILES).where(here).values(**values, **times))
                return kept, False
            count = sa.select(sa.func.count()).select_from(PROFILES).where(mine)
            if connection.execute(count).scalar_one() >= most:
                raise QuotaError
            made = sa.insert(PROFILES).values(owner=owner, name=kept.name, **values, **times)
            connection.execute(made)
            return kept, True

    def look_up(self, owner: str, name: str) -> tuple[str | None, list[str]]:
        """Return a calibration's JSON, and the owner's names."""
        here = sa.and_(PROFILES.c.owner == owner, PROFILES.c.name == name)
        late = sa.and_(here, PROFILES.c.used_ms < now_ms() - USED_UPDATE_MS)
        names = sa.select(PROFILES.c.name).where(PROFILES.c.owner == owner)
        with store_errors(), self._engine.begin() as connection:
            stored_names = sorted(connection.execute(names).scalars())
            text = connection.execute(sa.select(PROFILES.c.body).where(here)).scalar_one_or_none()
            if text is not None:
                connection.execute(sa.update(PROFILES).where(late).values(used_ms=now_ms()))
        return text, stored_names

    def get(self, owner: str, name: str) -> DbRow | None:
        """A calibration: its ``body``, ``hash`` and ``created_ms``."""
        query = sa.select(PROFILES).where(PROFILES.c.owner == owner, PROFILES.c.name == name)
        with store_errors(), self._engine.connect() as connection:
            return connection.execute(query).one_or_none()

    def all(self, owner: str) -> Sequence[DbRow]:
        """Every calibration of an owner, by name."""
        query = sa.select(PROFILES).where(PROFILES.c.owner == owner).order_by(PROFILES.c.name)
        with store_errors(), self._engine.connect() as connection:
            return connection.execute(query).all()

    def drop(self, owner: str, name: str) -> bool:
        """Delete a calibration; return True if there was one.

        Jobs keep what they were accepted with.
        """
        here = sa.and_(PROFILES.c.owner == owner, PROFILES.c.name == name)
        with store_errors(), self._engine.begin() as connection:
            return connection.execute(sa.delete(PROFILES).where(here)).rowcount == 1

    def forget(self, before_ms: int) -> None:
        """Delete those neither stored nor used since a time."""
        with store_errors(), self._engine.begin() as connection:
            connection.execute(sa.delete(PROFILES).where(PROFILES.c.used_ms < before_ms))


def _merged_calibration(text: str | None, fitted: Calibration, of_memory: bool) -> Calibration:
    if text is None:
        return fitted
    earlier = from_json(Calibration, text, CALIBRATION_SOURCE)
    if calibration_scope(earlier).in_any_format != fitted.scope.in_any_format:
        raise OtherScopeError(str(earlier.scope.in_any_format))
    if not is_current(earlier):
        return fitted
    if of_memory and fitted.memory is not None:
        return earlier.with_memory(fitted.memory)
    return replace(fitted, memory=earlier.memory)


def profile_summary(row: DbRow) -> dict[str, Any]:
    """Summarize a calibration for a list."""
    calibration = from_json(Calibration, row.body, CALIBRATION_SOURCE)
    return {
        "name": calibration.name,
        "hash": row.hash,
        "device": calibration.device,
        "stack": calibration.stack,
        "products": calibration.products,
        "fitted_on": len(calibration.fitted_on),
        "of_memory": calibration.memory is not None,
    }
