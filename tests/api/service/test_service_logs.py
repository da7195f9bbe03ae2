"""The service's log: one JSON line an event, that names requests and jobs and repeats nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
from service.request_bodies import PLAN
from service.services import start_service, stop_service

from shardwright.api.cli.main import run

MARK, TOKEN = "ZyzzyvaMark", "0123456789abcdef-Zyzzyva"


def test_a_request_and_its_job_are_logged_under_one_id(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    where = ("--db", f"sqlite:///{tmp_path}/jobs.sqlite", "--token-file", "tokens")
    service = start_service(tmp_path, *where, "--log", "info")
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=service.url, timeout=40, headers=bearer) as client:
        asked = {"X-Request-ID": "mine-1", "Prefer": "wait=30"}
        done = client.post("/v1/plans", json={**PLAN}, headers=asked)
        assert done.status_code == 200, done.text
        place = done.headers["location"]
        assert client.get(place, headers={"X-Request-ID": "mine-2"}).status_code == 200
        odd = {"X-Request-ID": "mine-3"}
        body = {**PLAN, "model": MARK, MARK: MARK}
        assert client.post(f"/v1/simulations?{MARK}", json=body, headers=odd).status_code == 422
        assert client.get(f"/{MARK}").status_code == 404
        assert client.get("/v1/models", headers={"Authorization": MARK}).status_code == 401
    code, err = stop_service(service)
    assert code == 0
    assert MARK not in err
    assert TOKEN not in err
    lines = [json.loads(line) for line in err.splitlines()]
    for line in lines:
        assert {"time", "level", "event"} <= set(line)
        assert line["level"] == "info"
    job_id = place.rpartition("/")[2]
    mine = [line for line in lines if line.get("request_id") == "mine-1"]
    asked_for, *_ = [line for line in mine if line["event"] == "request"]
    assert asked_for["job"] == job_id
    assert (asked_for["method"], asked_for["route"], asked_for["status"]) == (
        "POST", "/v1/plans", 200,
    )  # fmt: skip
    assert asked_for["seconds"] > 0
    states = [(line["state"], line["job"]) for line in mine if line["event"] == "job"]
    assert states == [("running", job_id), ("done", job_id)]
    [read] = [line for line in lines if line.get("request_id") == "mine-2"]
    assert (read["route"], read["job"]) == ("/v1/plans/{job_id}", job_id)
    routes = {line["route"] for line in lines if line["event"] == "request"}
    assert {"none", "/v1/simulations", "/readyz"} <= routes


def test_another_level_is_refused(capfd: Any) -> None:
    assert run(("serve", "--log", "debug", "--port", "0")) == 2
    assert "--log: got debug; allowed: info, error" in capfd.readouterr().err
