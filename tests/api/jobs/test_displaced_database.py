"""A database that is moved, replaced or broken under the service: nothing more is acknowledged."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from service.request_bodies import PLAN
from service.token_service import ANNA, Asked, with_service

from shardwright.api.server.jobs import readiness
from shardwright.api.server.jobs.database import (
    StoreError,
    check_writable,
    checked_url,
    open_engine,
    prepare,
)
from shardwright.api.server.jobs.readiness import JobReadiness
from shardwright.api.server.jobs.workers.slots import WorkerSlots

Displace = Callable[[Path], object]


def _replaced(file: Path) -> None:
    file.rename(file.with_name("away"))
    file.write_bytes(file.with_name("away").read_bytes())


def _overwritten(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"\xff" * 4096)


def _log_removed(file: Path) -> None:
    file.with_name(file.name + "-wal").unlink()


def _log_renewed(file: Path) -> None:
    log = file.with_name(file.name + "-wal")
    log.rename(log.with_name("away"))
    log.touch()


DISPLACED: dict[str, tuple[Displace, str]] = {
    "moved": (lambda file: file.rename(file.with_name("away")), "no longer in its place"),
    "deleted": (lambda file: file.unlink(), "no longer in its place"),
    "replaced": (_replaced, "no longer in its place"),
    "overwritten": (_overwritten, "was overwritten"),
    "emptied": (lambda file: os.truncate(file, 0), "was overwritten"),
    "cut": (lambda file: os.truncate(file, file.stat().st_size - 4096), "was cut"),
    "log removed": (_log_removed, "write-ahead log"),
    "log renewed": (_log_renewed, "write-ahead log"),
}


@pytest.mark.parametrize("how", DISPLACED)
def test_no_transaction_is_committed_into_a_displaced_file(tmp_path: Path, how: str) -> None:
    displace, reason = DISPLACED[how]
    file = tmp_path / "my jobs#1.sqlite"
    prepare(f"sqlite:///{file}")
    engine = open_engine(f"sqlite:///{file}")
    check_writable(engine)
    displace(file)
    with pytest.raises(StoreError, match=reason):
        check_writable(engine)
    engine.dispose()


def test_a_file_that_comes_back_is_used_again(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite"
    prepare(f"sqlite:///{file}")
    engine = open_engine(f"sqlite:///{file}")
    check_writable(engine)
    file.rename(tmp_path / "away")
    with pytest.raises(StoreError):
        check_writable(engine)
    assert not file.exists()  # nor is an empty one made in its place
    (tmp_path / "away").rename(file)
    check_writable(engine)
    with sqlite3.connect(file) as other:  # by somebody else, as is allowed
        other.execute("DELETE FROM shardwright_probes")
        other.commit()
        other.execute("VACUUM")
    other.close()
    for _ in range(3):
        check_writable(engine)
    engine.dispose()


def test_posts_and_probes_are_told_of_a_displaced_file(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        file = tmp_path / "jobs.sqlite"
        place = (await ask(ANNA, "POST", "/v1/plans", PLAN)).headers["location"]
        assert "no worker" in (await ask(ANNA, "GET", "/readyz")).json()["detail"]
        file.rename(tmp_path / "away")
        refused = await ask(ANNA, "POST", "/v1/plans", PLAN)
        assert refused.status_code == 503
        await asyncio.sleep(readiness.SOON_S)
        unready = await ask(ANNA, "GET", "/readyz")
        assert unready.status_code == 503
        assert "no longer in its place" in unready.json()["detail"]
        assert str(tmp_path) not in unready.text
        (tmp_path / "away").rename(file)
        assert (await ask(ANNA, "GET", place)).json()["state"] == "queued"
        assert (await ask(ANNA, "POST", "/v1/plans", PLAN)).status_code == 202

    with_service(tmp_path, test)


@pytest.fixture
def ready(tmp_path: Path) -> tuple[JobReadiness, sa.Engine]:
    prepare(f"sqlite:///{tmp_path}/jobs.sqlite")
    engine = open_engine(f"sqlite:///{tmp_path}/jobs.sqlite")
    slots = WorkerSlots(engine)
    slots.take()
    return JobReadiness(engine, slots), engine


def test_many_probes_cost_as_much_as_one(
    ready: tuple[JobReadiness, sa.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(readiness, "check_writable", lambda engine: looks.append(time.monotonic()))

    async def run() -> None:
        start_s = time.monotonic()
        while time.monotonic() < start_s + 2.5:
            assert set(await asyncio.gather(*(ready[0].workers() for _ in range(50)))) == {1}
            await asyncio.sleep(0.02)

    asyncio.run(run())
    assert 2 <= len(looks) <= 3
    ready[1].dispose()


def test_a_probe_is_answered_in_time(
    ready: tuple[JobReadiness, sa.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(readiness, "check_writable", lambda engine: hangs.wait(20))
    monkeypatch.setattr(readiness, "ANSWER_S", 0.2)

    async def run() -> None:
        for _ in range(3):
            with pytest.raises(StoreError, match="no answer"):
                await ready[0].workers()
        hangs.set()
        assert await ready[0].workers() == 1

    asyncio.run(run())
    ready[1].dispose()


@pytest.mark.parametrize("name", ["postgresql", "postgresql+psycopg"])
def test_names_of_one_kind_of_database_are_one(name: str) -> None:
    address = "anna:secret@host:5433/plans?sslmode=require"
    assert checked_url(f"{name}://{address}") == f"postgresql://{address}"
