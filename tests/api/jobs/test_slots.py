"""Slots of workers: who is dead is told by counts that stand still, never by a clock on a wall."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from service.services import database

from shardwright.api.server.jobs.database import open_engine, prepare
from shardwright.api.server.jobs.schema import SLOTS
from shardwright.api.server.jobs.workers import slots
from shardwright.api.server.jobs.workers.slots import WorkerSlots, has_ended, process_name

MakeSlots = Callable[[], WorkerSlots]


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSlots]:
    """Makes holders of slots in one database."""
    with database(request.param, tmp_path) as url:
        prepare(url)
        engine = open_engine(url)
        yield lambda: WorkerSlots(engine)
        engine.dispose()


class Clocks:
    """The clocks of this process, set by hand."""

    def __init__(self) -> None:
        self.monotonic_s, self.wall_s = 1000.0, 1.7e9

    def go(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    set_by_hand = Clocks()
    monkeypatch.setattr(slots.time, "monotonic", lambda: set_by_hand.monotonic_s)
    monkeypatch.setattr(time, "time", lambda: set_by_hand.wall_s)
    monkeypatch.setattr(time, "time_ns", lambda: int(set_by_hand.wall_s * 1e9))
    return set_by_hand


def test_a_holder_that_beats_keeps_its_slot_whatever_the_clocks_say(
    made: MakeSlots, clocks: Clocks
) -> None:
    first, second = made(), made()
    numbers = first.take(), second.take()
    assert numbers == (0, 1)
    for jump_s in (0, 20, -40, 86_400, -86_400, 0, -20, 20) * 3:
        clocks.wall_s += jump_s  # as on another machine, whose clock goes wrong
        assert first.heartbeat(0)
        clocks.wall_s -= 2 * jump_s
        assert second.heartbeat(1)
        assert first.take_over(0) == second.take_over(1) == []
        assert first.count_live() == 2
        clocks.go(1)


def test_a_count_that_stands_still_is_that_of_a_dead_holder(
    made: MakeSlots, clocks: Clocks
) -> None:
    first, second = made(), made()
    first.take(), second.take()
    start_s = clocks.monotonic_s
    while not (taken := first.take_over(0)):
        clocks.go(1)
        assert first.heartbeat(0)
    assert (taken, clocks.monotonic_s - start_s) == ([1], int(slots.STALE_S) + 1)
    assert not second.heartbeat(1)  # it ends itself
    assert first.take_over(0) == [1]  # until it is dropped
    first.drop(1)
    assert first.take_over(0) == []
    assert made().take() == 1


def test_whoever_looked_away_judges_no_one(made: MakeSlots, clocks: Clocks) -> None:
    first, second = made(), made()
    first.take(), second.take()
    assert first.take_over(0) == []
    clocks.go(100)  # stopped, or held up by the database
    assert first.take_over(0) == []
    assert second.heartbeat(1)
    clocks.go(1)
    assert first.take_over(0) == []


def test_a_process_that_is_gone_is_dead_at_once(made: MakeSlots, clocks: Clocks) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        name = process_name(process.pid)
        assert name is not None
        assert not has_ended(name)
        assert has_ended(f"{process.pid}:1")  # a number that was given anew
        process.communicate(b"\n")
    assert has_ended(name)
    assert not has_ended(process_name(os.getpid()) or "")
    first, second = made(), made()
    first.take(), second.take()
    with first._engine.begin() as connection:
        connection.execute(sa.update(SLOTS).where(SLOTS.c.slot == 1).values(process=name))
    assert first.count_live() == 1
    assert first.take_over(0) == []
    clocks.go(2)
    assert first.take_over(0) == [1]
