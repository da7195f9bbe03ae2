"""WorkerSlots: numbered places of workers, each held by one living process.

A slot's number is its holder's executor id at the library, by which the jobs of a dead worker are
found. Holders count their slot's beats up every second. Whoever looks on judges by its own
monotonic clock how long a count has stood still: no clock is compared with another one, and any may
jump. A holder that cannot beat, or whose slot was taken, ends itself, so that a slot never has two.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from ..database import StoreError, store_errors
from ..schema import SLOTS, DbRow

HEARTBEAT_S = 1.0
STALE_S = 6.0
"""A count that stood still for so long is that of a dead holder."""
GONE_S = 1.5
"""The same where the holder's process is known to be gone."""
LOOK_S = 3 * HEARTBEAT_S
"""Whoever looked away for longer judges no one by what was seen before."""


def executor_id(slot: int) -> str:
    """Name of a slot's holder at the library."""
    return f"slot-{slot}"


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
    return f"{number}:zombie" if fields[0] in "XZ" else f"{number}:{fields[19]}"


def has_ended(process: str) -> bool:
    """Return True if a process of this machine is surely gone."""
    number = process.partition(":")[0]
    if not number.isdecimal():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        pass
    return process_name(int(number)) not in (process, None)


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """A slot's beat as it was first seen, by the monotonic clock."""

    holder: str
    beat: int
    since_s: float
    moved: bool


class WorkerSlots:
    """The slots of a database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._holder = secrets.token_hex(16)
        self._machine = machine_name()
        process = process_name(os.getpid()) or str(os.getpid())
        self._mine = {"holder": self._holder, "machine": self._machine, "process": process}
        self._seen: dict[int, SeenBeat] = {}
        self._looked_s = 0.0

    def take(self) -> int:
        """Take the lowest slot that no one holds, dead or alive."""
        while True:
            try:
                with store_errors(), self._engine.begin() as connection:
                    # The write lock first, where there is one for the whole database.
                    connection.execute(sa.delete(SLOTS).where(SLOTS.c.slot < 0))
                    slots = set(connection.execute(sa.select(SLOTS.c.slot)).scalars())
                    new = next(n for n in range(len(slots) + 1) if n not in slots)
                    connection.execute(sa.insert(SLOTS).values(slot=new, beat=0, **self._mine))
                return new
            except StoreError as error:
                if not isinstance(error.__cause__, sa.exc.IntegrityError):
                    raise  # else another one took it just now

    def heartbeat(self, slot: int) -> bool:
        """Record a heartbeat; False where the slot was lost."""
        update = sa.update(SLOTS).where(SLOTS.c.slot == slot, SLOTS.c.holder == self._holder)
        with store_errors(), self._engine.begin() as connection:
            return connection.execute(update.values(beat=SLOTS.c.beat + 1)).rowcount == 1

    def take_over(self, own: int) -> list[int]:
        """Take over slots of dead holders, until they are dropped.

        To be called about as often as holders beat.
        """
        if time.monotonic() - self._looked_s > LOOK_S:
            self._seen.clear()
        with store_errors(), self._engine.begin() as connection:
            looked = self._look(connection)
            self._looked_s = time.monotonic()
            dead = [row for row, seen, silent_s in looked if row.slot != own
                    and (row.holder == self._holder or self._is_dead(row, silent_s))]  # fmt: skip
            return [row.slot for row in dead if self._claim(connection, row)]

    def drop(self, slot: int) -> None:
        """Give a slot up."""
        delete = sa.delete(SLOTS).where(SLOTS.c.slot == slot, SLOTS.c.holder == self._holder)
        with store_errors(), self._engine.begin() as connection:
            connection.execute(delete)

    def count_live(self) -> int:
        """Count workers that live.

        One of another machine counts once it was seen to beat, between two calls.
        """
        with store_errors(), self._engine.connect() as connection:
            looked = self._look(connection)
        return sum(
            not self._is_dead(row, silent_s, gone_s=0.0)
            and (seen.moved or row.machine == self._machine)
            for row, seen, silent_s in looked
        )

    def _look(self, connection: sa.Connection) -> list[tuple[DbRow, SeenBeat, float]]:
        """Every slot, its beat, and the seconds in which it was seen to stand still."""
        now_s = time.monotonic()
        rows = connection.execute(sa.select(SLOTS).order_by(SLOTS.c.slot)).all()
        read_s, before = time.monotonic(), self._seen
        seen: dict[int, SeenBeat] = {}
        for row in rows:
            last = before.get(row.slot)
            if last is None or (last.holder, last.beat) != (row.holder, row.beat):
                last = SeenBeat(row.holder, row.beat, read_s, moved=last is not None)
            seen[row.slot] = last
        self._seen = seen
        silent_s = {slot: max(0.0, now_s - beat.since_s) for slot, beat in seen.items()}
        return [(row, seen[row.slot], silent_s[row.slot]) for row in rows]

    def _is_dead(self, row: DbRow, silent_s: float, gone_s: float = GONE_S) -> bool:
        if silent_s > STALE_S:
            return True
        return silent_s >= gone_s and row.machine == self._machine and has_ended(str(row.process))

    def _claim(self, connection: sa.Connection, row: DbRow) -> bool:
        update = sa.update(SLOTS).where(
            SLOTS.c.slot == row.slot, SLOTS.c.holder == row.holder, SLOTS.c.beat == row.beat
        )
        return connection.execute(update.values(beat=row.beat + 1, **self._mine)).rowcount == 1
