"""Runs over HTTP: only where the service was started for them, and then as ``plan execute``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from service import request_bodies
from service.services import start_service, stop_service

PLAN = {**request_bodies.QUESTION, "cluster": "local:1", "calibration": "none",
        "constraints": {"pins": ["tp=1", "pp=1", "recompute=none"]}}  # fmt: skip
PROBLEM = "application/problem+json"


def test_a_service_runs_nothing_unless_it_is_told_to(service: Any) -> None:
    paths = httpx.get(service.url + "/openapi.json").json()["paths"]
    assert not any("runs" in path for path in paths)
    for method, path in (("POST", ""), ("GET", ""), ("GET", "/" + "0" * 32)):
        answer = httpx.request(method, f"{service.url}/v1/runs{path}", json={"steps": 1})
        assert answer.status_code == 404
        assert answer.headers["content-type"] == PROBLEM


@pytest.mark.timeout(200)
def test_a_plan_is_run_and_a_run_is_cancelled(tmp_path: Path) -> None:
    service = start_service(
        tmp_path, "--allow-execute", "--db", f"sqlite:///{tmp_path}/jobs.sqlite"
    )
    with httpx.Client(base_url=service.url, timeout=60) as client:
        found = client.post("/v1/plans", json=PLAN, headers={"Prefer": "wait=30"})
        assert found.status_code == 200, found.text
        plan_id = found.headers["location"].rpartition("/")[2]
        for odd in ({"steps": 1}, {"plan_id": plan_id}, {"plan_id": plan_id, "steps": 0},
                    {"plan_id": "0" * 32, "steps": 1}, {"plan": {}, "steps": 1}):  # fmt: skip
            assert client.post("/v1/runs", json=odd).status_code == 422, odd
        place = client.post("/v1/runs", json={"plan_id": plan_id, "steps": 3}).headers["location"]
        job = _ended(client, place)
        assert job["state"] == "done", job["problem"]
        assert job["kind"] == "run"
        assert job["answer"]["plan_hash"] == found.json()["plan_hash"]
        assert len(job["answer"]["measured"]["losses"]) == 3
        long = client.post("/v1/runs", json={"plan_id": plan_id, "steps": 10_000})
        place = long.headers["location"]
        while client.get(place).json()["state"] == "queued":
            time.sleep(0.05)
        assert client.delete(place).status_code == 202
        assert _ended(client, place)["state"] == "cancelled"
        many = {**PLAN, "cluster": "2xH100"}
        found = client.post("/v1/plans", json=many, headers={"Prefer": "wait=30"})
        body = {"plan": found.json()["plan"], "steps": 1}
        failed = client.post("/v1/runs", json=body, headers={"Prefer": "wait=30"})
        assert failed.status_code == 422
        assert "this machine" in failed.json()["detail"]
    assert stop_service(service) == (0, "")


def _ended(client: httpx.Client, place: str) -> Any:
    ends_s = time.monotonic() + 90
    while time.monotonic() < ends_s:
        job = client.get(place).json()
        if job["state"] in ("done", "failed", "cancelled"):
            return job
        time.sleep(0.1)
    raise AssertionError(f"{place} has not ended")
