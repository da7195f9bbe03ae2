"""Clocks that jump: ids and times keep their order, and nothing young is forgotten."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from service.request_bodies import PLAN
from service.token_service import ANNA, Asked, with_service

from shardwright.api.server.jobs.ids import cursor_id, cursor_of, follow_id, new_id
from shardwright.api.server.jobs.steady_clock import DAY_S, SteadyClock

DAY_NS = int(DAY_S * 1e9)


class Wall:
    """The clock of this process, ahead by so much."""

    ahead_ns = 0


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> type[Wall]:
    right = time.time_ns
    monkeypatch.setattr(Wall, "ahead_ns", 0)
    monkeypatch.setattr(time, "time_ns", lambda: right() + Wall.ahead_ns)
    monkeypatch.setattr(time, "time", lambda: (right() + Wall.ahead_ns) / 1e9)
    return Wall


def test_ids_grow_whatever_the_clock_does(wall: type[Wall]) -> None:
    ids = []
    for ahead_days in (0, 1, -1, 0, -20, 2, 0):
        wall.ahead_ns = ahead_days * DAY_NS
        ids += [new_id() for _ in range(50)]
    other = f"{int(ids[-1][:12], 16) + 5000:012x}" + "f" * 20  # of a server whose clock is ahead
    follow_id(other)
    ids += [other, new_id()]
    assert ids == sorted(set(ids))
    assert [cursor_id(cursor_of(job_id)) for job_id in ids] == ids


def _listed(page: Any) -> list[str]:
    return [item["id"] for item in page["items"]]


def test_jobs_stay_in_the_order_in_which_they_came(tmp_path: Path, wall: type[Wall]) -> None:
    """In lists, and within each of them: created, begun, ended."""

    async def test(ask: Asked) -> None:
        made = []
        for ahead_days in (0, -3, -5, 2, -1):
            wall.ahead_ns = ahead_days * DAY_NS
            made.append((await ask(ANNA, "POST", "/v1/plans", PLAN)).json()["id"])
        listed: list[str] = []
        cursor = ""
        while cursor is not None:
            page = (await ask(ANNA, "GET", f"/v1/plans?limit=2{cursor}")).json()
            listed += _listed(page)
            cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        assert listed == made[::-1]
        wall.ahead_ns = -9 * DAY_NS
        store = ask.app.state.jobs.store
        store.begin(made[0])
        store.finish(made[0], "done", 200, "{}")
        assert (await ask(ANNA, "DELETE", f"/v1/plans/{made[1]}")).status_code == 202
        for job_id in made[:2]:
            job = (await ask(ANNA, "GET", f"/v1/plans/{job_id}")).json()
            times = [job[name] for name in ("created_at", "started_at", "finished_at")]
            given = [at for at in times if at is not None]
            assert given == sorted(given)

    with_service(tmp_path, test)


def test_a_clock_that_jumps_ahead_forgets_nothing(tmp_path: Path, wall: type[Wall]) -> None:
    async def test(ask: Asked) -> None:
        place = (await ask(ANNA, "POST", "/v1/plans", PLAN)).headers["location"]
        await ask(ANNA, "DELETE", place)
        await asyncio.sleep(0.3)  # the clock was looked at
        wall.ahead_ns = 400 * DAY_NS
        await asyncio.sleep(0.5)
        assert (await ask(ANNA, "GET", place)).json()["state"] == "cancelled"

    with_service(tmp_path, test, forget_interval_s=0.1)

    # Nor does a service that starts while the clock is wrong.
    async def started(ask: Asked) -> None:
        await asyncio.sleep(0.5)
        assert len(_listed((await ask(ANNA, "GET", "/v1/plans")).json())) == 1

    with_service(tmp_path, started, forget_interval_s=0.1)


def test_a_clock_is_believed_a_day_after_it_jumped(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed_s, ahead_s = [1000.0], [1.7e9]
    module = "shardwright.api.server.jobs.steady_clock"
    monkeypatch.setattr(f"{module}._elapsed_s", lambda: elapsed_s[0])
    monkeypatch.setattr(time, "time", lambda: elapsed_s[0] + ahead_s[0])
    clock = SteadyClock()
    assert clock.is_steady()
    elapsed_s[0] += 40 * DAY_S  # it slept
    ahead_s[0] += 30  # and was set right a little
    assert clock.is_steady()
    ahead_s[0] += 3600
    assert not clock.is_steady()
    elapsed_s[0] += DAY_S - 1
    assert not clock.is_steady()
    elapsed_s[0] += 1
    assert clock.is_steady()
    assert not SteadyClock(doubtful=True).is_steady()
