"""Whose jobs are whose, how many there may be, how long they are kept, and a database that fails.

In this process, without workers: jobs stay as they were asked for.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from service.request_bodies import PLAN
from service.token_service import ANNA, BEN, Asked, with_service

from shardwright.api.server.jobs.database import checked_url, prepare
from shardwright.spec.errors import InputError

PROBLEM = "application/problem+json"


def test_nobody_sees_the_jobs_of_another_token(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        key = {"Idempotency_Key": "one"}
        made = await ask(ANNA, "POST", "/v1/plans", PLAN, **key)
        assert made.status_code == 202
        place = made.headers["location"]
        assert (await ask(ANNA, "GET", place)).json()["state"] == "queued"
        shown = ("", "/events", "/trace", "/view", "/export/html", "/export/plan", "/compare/")
        for method, path in (("DELETE", ""), *(("GET", what) for what in shown)):
            path += place.rpartition("/")[2] if path == "/compare/" else ""
            hidden = await ask(BEN, method, place + path)
            missing = await ask(BEN, method, "/v1/plans/" + "0" * 32 + path)
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json() == missing.json()
        assert (await ask(BEN, "GET", "/v1/plans")).json()["items"] == []
        assert (await ask(ANNA, "GET", "/v1/what-ifs")).json()["items"] == []
        own = await ask(BEN, "POST", "/v1/plans", PLAN, **key)
        assert own.status_code == 202
        assert own.headers["location"] != place
        question = {"plan_id": place.rpartition("/")[2], "set": {"nodes": 2}}
        refused = await ask(BEN, "POST", "/v1/what-ifs", question)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/plan_id"
        assert (await ask(ANNA, "GET", place)).json()["state"] == "queued"

    with_service(tmp_path, test)


def test_open_jobs_of_a_token_are_counted(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        places = []
        for _ in range(2):
            made = await ask(ANNA, "POST", "/v1/plans", PLAN, Idempotency_Key=str(len(places)))
            places.append(made.headers["location"])
        full = await ask(ANNA, "POST", "/v1/plans", PLAN)
        assert full.status_code == 429
        assert full.headers["retry-after"]
        assert full.json()["type"] == "urn:shardwright:problem:quota"
        again = await ask(ANNA, "POST", "/v1/plans", PLAN, Idempotency_Key="0")
        assert (again.status_code, again.headers["location"]) == (202, places[0])
        assert (await ask(BEN, "POST", "/v1/plans", PLAN)).status_code == 202
        assert (await ask(ANNA, "DELETE", places[0])).json()["state"] == "cancelled"
        assert (await ask(ANNA, "POST", "/v1/plans", PLAN)).status_code == 202

    with_service(tmp_path, test, quota=2)


def test_ended_jobs_are_forgotten(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        kept, ended = [
            (await ask(ANNA, "POST", "/v1/plans", PLAN)).headers["location"] for _ in range(2)
        ]
        await ask(ANNA, "DELETE", ended)
        ends_s = asyncio.get_running_loop().time() + 20
        while (await ask(ANNA, "GET", ended)).status_code != 404:
            assert asyncio.get_running_loop().time() < ends_s
            await asyncio.sleep(0.05)
        assert (await ask(ANNA, "GET", kept)).json()["state"] == "queued"
        with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
            query = "SELECT workflow_uuid FROM workflow_status"
            left = [row[0] for row in database.execute(query)]
        database.close()
        assert left == [kept.rpartition("/")[2]]

    with_service(tmp_path, test, kept_days=0.0, forget_interval_s=0.1)


def test_metrics_and_request_ids(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        made = await ask(ANNA, "POST", "/v1/plans", PLAN, X_Request_ID="mine-1")
        assert made.headers["x-request-id"] == "mine-1"
        odd = await ask(ANNA, "GET", "/v1/nothing/" + "x" * 50, X_Request_ID="a b<")
        assert len(odd.headers["x-request-id"]) == 16
        text = (await ask(ANNA, "GET", "/metrics")).text
        assert 'shardwright_jobs{state="queued"} 1.0' in text
        assert 'route="/v1/plans",status="202"} 1.0' in text
        assert 'route="none",status="404"} 1.0' in text
        assert "shardwright_workers 0.0" in text
        assert "nothing" not in text

    with_service(tmp_path, test)


def test_readiness_tells_of_workers_and_database(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        idle = await ask(ANNA, "GET", "/readyz")
        assert idle.status_code == 503
        assert "lives" in idle.json()["detail"] or "alive" in idle.json()["detail"]

    with_service(tmp_path, test)


def test_a_database_that_is_damaged_under_way_is_a_503(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        place = (await ask(ANNA, "POST", "/v1/plans", PLAN)).headers["location"]
        ask.app.state.jobs.store.engine.dispose()
        for file in tmp_path.glob("jobs.sqlite*"):
            file.write_bytes(b"\xff" * 8192)
        for method, path, body in (
            ("GET", place, None),
            ("GET", "/v1/plans", None),
            ("DELETE", place, None),
            ("POST", "/v1/plans", PLAN),
            ("GET", "/readyz", None),
        ):
            failed = await ask(ANNA, method, path, body)
            assert failed.status_code == 503, (method, path, failed.text)
            assert failed.headers["content-type"] == PROBLEM
            assert failed.headers["retry-after"]
        assert (await ask(ANNA, "GET", "/healthz")).status_code == 200
        assert "shardwright_database_up 0.0" in (await ask(ANNA, "GET", "/metrics")).text

    with_service(tmp_path, test)


def test_a_full_disk_is_a_503_and_no_half_job(tmp_path: Path) -> None:
    async def test(ask: Asked) -> None:
        store = ask.app.state.jobs.store
        with store.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

        def limit(connection: Any, *rest: Any) -> None:
            connection.execute(f"PRAGMA max_page_count={pages + 2}")

        import sqlalchemy as sa

        sa.event.listen(store.engine, "checkout", limit)
        answers = [await ask(ANNA, "POST", "/v1/plans", PLAN) for _ in range(60)]
        statuses = [answer.status_code for answer in answers]
        assert 503 in statuses
        assert set(statuses) <= {202, 503}
        listed = (await ask(ANNA, "GET", "/v1/plans?limit=100")).json()["items"]
        assert len(listed) == statuses.count(202)
        sa.event.remove(store.engine, "checkout", limit)

    with_service(tmp_path, test)


@pytest.mark.parametrize("damage", ["no database", "damaged", "folder", "read only"])
def test_a_database_of_no_use_is_refused_at_the_start(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "jobs.sqlite"
    if damage == "no database":
        file.write_bytes(b"something else " * 400)
    elif damage == "damaged":
        prepare(f"sqlite:///{file}")
        content = bytearray(file.read_bytes())
        content[4096:20480] = b"\x5a" * 16384
        file.write_bytes(content)
    elif damage == "folder":
        file.mkdir()
    else:
        (tmp_path / "plain").write_text("")
        file = tmp_path / "plain" / "jobs.sqlite"
    with pytest.raises(InputError) as caught:
        prepare(f"sqlite:///{file}")
    assert caught.value.field == "--db"
    assert "move jobs.sqlite" in caught.value.allowed
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "", "jobs.sqlite", "mysql://x/y", "sqlite://", "sqlite:///:memory:", "postgresql://h",
        "sqlite+x:///jobs.sqlite", "sqlite+:///jobs.sqlite", "postgresql+x://h/jobs",
        "sqlite:///a%00b", "sqlite:///a\0b", "postgresql://u:%00@h/jobs", "sqlite:///~nobody-9/x",
        "sqlite://h/jobs.sqlite",
    ],
)  # fmt: skip
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_url(url)
    assert caught.value.field == "--db"
    assert str(caught.value).isprintable()
