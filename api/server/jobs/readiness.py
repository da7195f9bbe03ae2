"""Whether jobs are kept and done, as probes ask."""

from __future__ import annotations

import asyncio
import time

import sqlalchemy as sa

from .database import StoreError, check_writable
from .workers.slots import WorkerSlots

FRESH_S = 1.0
"""So long an answer is given again: many probes cost as much as one."""
SOON_S = 0.1
"""The same while there is no worker, as at the start."""
ANSWER_S = 5.0


class JobReadiness:
    """The readiness of a database and its workers."""

    def __init__(self, engine: sa.Engine, slots: WorkerSlots) -> None:
        self._engine, self._slots = engine, slots
        self._look: asyncio.Task[int] | None = None
        self._fresh_until_s = 0.0

    async def workers(self) -> int:
        """Count the workers that live, once the database kept a row.

        Raises:
            StoreError: it cannot be read or written now, or does not answer in time.
        """
        if self._look is None or (self._look.done() and time.monotonic() > self._fresh_until_s):
            self._look = asyncio.create_task(asyncio.to_thread(self._read))
            self._look.add_done_callback(self._keep)
        try:
            return await asyncio.wait_for(asyncio.shield(self._look), ANSWER_S)
        except TimeoutError:
            raise StoreError(f"no answer within {ANSWER_S:g} s") from None

    def _keep(self, look: asyncio.Task[int]) -> None:
        failed = look.cancelled() or look.exception() is not None
        fresh_s = FRESH_S if failed or look.result() else SOON_S
        self._fresh_until_s = time.monotonic() + fresh_s

    def _read(self) -> int:
        check_writable(self._engine)
        return self._slots.count_live()
