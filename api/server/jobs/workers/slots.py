"""WorkerSlots: numbered places of workers, each held by one living process.

The library reruns a dead worker's jobs when a worker of the same executor id starts. The id is the
slot's number, and a starting worker takes the lowest slot whose holder is gone. Holders beat every
second; one that cannot, or whose slot was taken, ends itself, so that a slot never has two.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import sqlalchemy as sa

from ..database import store_errors
from ..schema import SLOTS, now_ms

HEARTBEAT_S = 1.0
STALE_MS = 6000


def machine_name() -> str:
    """Identify this machine, its boot and its container."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            text = os.readlink(path) if "/ns/" in path else Path(path).read_text().strip()
        except OSError:
            text = "?"
        parts.append(text)
    return "/".join(parts)


def process_name(number: int) -> str | None:
    """Identify a living process by number and start; else None."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{number}:{fields[19]}"


class WorkerSlots:
    """The slots of a database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._machine = machine_name()
        self._holder = secrets.token_hex(16)

    def take(self) -> int:
        """Take the lowest slot without a living holder."""
        process = process_name(os.getpid()) or str(os.getpid())
        mine = {"holder": self._holder, "machine": self._machine, "process": process}
        while True:
            with store_errors(), self._engine.begin() as connection:
                # The write lock first, where there is one for the whole database.
                connection.execute(sa.delete(SLOTS).where(SLOTS.c.slot < 0))
                rows = connection.execute(sa.select(SLOTS).order_by(SLOTS.c.slot)).all()
                free = next((row for row in rows if self._is_free(row)), None)
                slots = {row.slot for row in rows}
                new = next(n for n in range(len(slots) + 1) if n not in slots)
                if free is not None and free.slot < new:
                    taken = self._claim(connection, free, mine)
                    if taken:
                        return int(free.slot)
                    continue
                try:
                    connection.execute(sa.insert(SLOTS).values(slot=new, beat_ms=now_ms(), **mine))
                    return new
                except sa.exc.IntegrityError:  # another one took it just now
                    connection.rollback()

    def _claim(self, connection: sa.Connection, row: sa.Row[tuple[object, ...]],
               mine: dict[str, str]) -> bool:  # fmt: skip
        update = sa.update(SLOTS).where(
            SLOTS.c.slot == row.slot, SLOTS.c.holder == row.holder, SLOTS.c.beat_ms == row.beat_ms
        )
        return connection.execute(update.values(beat_ms=now_ms(), **mine)).rowcount == 1

    def _is_free(self, row: sa.Row[tuple[object, ...]]) -> bool:
        if row.machine == self._machine:
            number = str(row.process).partition(":")[0]
            return not number.isdecimal() or process_name(int(number)) != row.process
        return bool(now_ms() - row.beat_ms > STALE_MS)

    def heartbeat(self, slot: int) -> bool:
        """Record a heartbeat; False where the slot was lost."""
        update = sa.update(SLOTS).where(SLOTS.c.slot == slot, SLOTS.c.holder == self._holder)
        with store_errors(), self._engine.begin() as connection:
            return connection.execute(update.values(beat_ms=now_ms())).rowcount == 1

    def take_over(self) -> list[int]:
        """Take over slots that stayed dead, until they are dropped."""
        late = sa.select(SLOTS).where(SLOTS.c.beat_ms < now_ms() - STALE_MS)
        mine = {"holder": self._holder, "machine": self._machine,
                "process": process_name(os.getpid()) or ""}  # fmt: skip
        with store_errors(), self._engine.begin() as connection:
            rows = connection.execute(late).all()
            others = [row for row in rows if row.holder != self._holder]
            return [row.slot for row in others if self._claim(connection, row, mine)]

    def drop(self, slot: int) -> None:
        """Give a slot up."""
        delete = sa.delete(SLOTS).where(SLOTS.c.slot == slot, SLOTS.c.holder == self._holder)
        with store_errors(), self._engine.begin() as connection:
            connection.execute(delete)

    def count_live(self) -> int:
        """Count workers with a recent heartbeat."""
        query = sa.select(SLOTS).where(SLOTS.c.beat_ms > now_ms() - STALE_MS)
        with store_errors(), self._engine.connect() as connection:
            return sum(not self._is_free(row) for row in connection.execute(query))
