"""Jobs over HTTP: asked for, watched, listed, cancelled; what each state and header says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service.request_bodies import PLAN, SLOW
from service.services import database, start_service, stop_service

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of a service on each kind of database."""
    if request.param == "sqlite":
        with httpx.Client(base_url=request.getfixturevalue("service").url, timeout=45) as made:
            yield made
        return
    folder = tmp_path_factory.mktemp("postgres")
    with database(request.param, folder) as url:
        running = start_service(folder, "--db", url)
        with httpx.Client(base_url=running.url, timeout=45) as made:
            yield made
        assert stop_service(running) == (0, "")


def ended(client: httpx.Client, place: str, within_s: float = 45) -> Any:
    """The document of a job once it has ended."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        found = client.get(place)
        assert found.status_code == 200, found.text
        if found.json()["state"] in ("done", "failed", "cancelled"):
            return found.json()
        time.sleep(0.1)
    raise AssertionError(f"{place} has not ended: {found.json()['state']}")


def events(client: httpx.Client, place: str, last: str | None = None) -> list[dict[str, Any]]:
    """All events until ``done``."""
    headers = {} if last is None else {"Last-Event-ID": last}
    found, event = [], dict[str, Any]()
    with client.stream("GET", place + "/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line and not line.startswith(":"):
                event[name] = json.loads(value) if name == "data" else value
            elif event:
                found.append(event)
                event = {}
    return [each for each in found if "event" in each]


@pytest.fixture(scope="module")
def done(client: httpx.Client) -> str:
    """Where a job is that is done."""
    place = client.post("/v1/plans", json=PLAN).headers["location"]
    assert ended(client, place)["state"] == "done"
    return place


def test_a_job_is_accepted_and_then_done(client: httpx.Client) -> None:
    answer = client.post("/v1/plans", json=PLAN)
    assert answer.status_code == 202
    assert int(answer.headers["retry-after"]) >= 1
    place, new = answer.headers["location"], answer.json()
    assert place == f"/v1/plans/{new['id']}"
    assert new["state"] in ("queued", "running")
    assert new["deadline_s"] == 60
    job = ended(client, place)
    assert job["state"] == "done"
    assert job["attempt"] == 1
    assert job["problem"] is None
    assert job["answer"]["search"]["candidates"] >= 1
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert job["best"]["gap"] >= job["answer"]["search"]["gap"] >= 0
    assert job["best"]["lower_bound_s"] <= job["answer"]["search"]["lower_bound_s"] * (1 + 1e-9)


def test_a_preference_that_is_met_is_the_plan(client: httpx.Client, done: str) -> None:
    answer = client.post("/v1/plans", json=PLAN, headers={"Prefer": "wait=30"})
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=30"
    job = client.get(answer.headers["location"]).json()
    assert job["answer"] == answer.json()
    earlier = client.get(done).json()["answer"]
    assert earlier["plan"] == answer.json()["plan"]


def test_a_preference_that_is_not_met_is_a_job(client: httpx.Client) -> None:
    answer = client.post("/v1/plans", json=SLOW, headers={"Prefer": "wait=1"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=1"
    assert client.delete(answer.headers["location"]).status_code == 202


def test_what_is_infeasible_fails_with_its_problem(client: httpx.Client) -> None:
    body = {"model": "llama-3-70b", "cluster": "1xH100",
            "workload": {"global_batch": 1, "seq_len": 512}}  # fmt: skip
    answer = client.post("/v1/plans", json=body, headers={"Prefer": "wait=30"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == PROBLEM
    job = client.get(answer.headers["location"]).json()
    assert job["state"] == "failed"
    assert job["answer"] is None
    assert job["problem"] == answer.json()


def test_the_same_key_is_the_same_job(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": f"key-{time.time_ns()}"}
    first = client.post("/v1/plans", json=PLAN, headers=headers)
    again = client.post("/v1/plans", json=dict(reversed(PLAN.items())), headers=headers)
    assert first.status_code == again.status_code == 202
    assert first.headers["location"] == again.headers["location"]
    other = client.post("/v1/plans", json={**PLAN, "deadline_s": 5}, headers=headers)
    assert other.status_code == 422
    assert other.json()["type"] == "urn:shardwright:problem:key-used"
    assert client.post("/v1/plans", json=PLAN).headers["location"] != first.headers["location"]
    for odd in ("", "a b", "x" * 201):
        refused = client.post("/v1/plans", json=PLAN, headers={"Idempotency-Key": odd})
        assert refused.status_code == 422
        assert refused.headers["content-type"] == PROBLEM


def test_an_ended_job_has_a_tag(client: httpx.Client, done: str) -> None:
    whole = client.get(done)
    tag = whole.headers["etag"]
    assert "no-store" not in whole.headers["cache-control"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        same = client.get(done, headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert client.get(done, headers={"If-None-Match": '"x"'}).content == whole.content


def test_pages_go_through_all_jobs_once(client: httpx.Client) -> None:
    places = {client.post("/v1/plans", json=PLAN).headers["location"] for _ in range(3)}
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = client.get("/v1/plans", params=query)
        assert page.status_code == 200
        assert len(page.json()["items"]) <= 2
        seen += [item["id"] for item in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen, reverse=True)
    assert {place.rpartition("/")[2] for place in places} <= set(seen)
    for query in ({"limit": 0}, {"limit": 101}, {"limit": "x"}, {"limit": "٣"}, {"cursor": "x"},
                  {"cursor": "A" * 21 + "B"}):  # fmt: skip
        refused = client.get("/v1/plans", params=query)
        assert refused.status_code == 422, query
        assert refused.headers["content-type"] == PROBLEM


def test_events_tell_and_resume(client: httpx.Client) -> None:
    place = client.post("/v1/plans", json=PLAN).headers["location"]
    found = events(client, place)
    names = [event["event"] for event in found]
    assert names[0] == "progress"
    assert "best" in names
    assert names[-1] == "done"
    assert "candidates" in found[0]["data"]
    assert [int(event["id"]) for event in found] == list(range(len(found)))
    assert found[-1]["data"] == {"state": "done"}
    best = next(event["data"] for event in found if event["event"] == "best")
    assert {"plan", "plan_hash", "step_time_s", "lower_bound_s", "gap", "candidates"} <= set(best)
    assert events(client, place, found[1]["id"]) == found[2:]
    over = client.get(place + "/events", headers={"Last-Event-ID": found[-1]["id"]})
    assert (over.status_code, over.content) == (204, b"")
    odd = client.get(place + "/events", headers={"Last-Event-ID": "x"})
    assert odd.status_code == 422


def test_a_running_search_ends_soon_after_it_is_cancelled(client: httpx.Client) -> None:
    place = client.post("/v1/plans", json=SLOW).headers["location"]
    until_s = time.monotonic() + 30
    while client.get(place).json()["state"] == "queued" and time.monotonic() < until_s:
        time.sleep(0.05)
    assert client.get(place).json()["state"] == "running"
    assert client.get(place).headers.get("etag") is None
    answer = client.delete(place)
    assert answer.status_code == 202
    assert answer.json()["cancel_asked_at"] is not None
    job = ended(client, place, 20)
    assert job["state"] == "cancelled"
    assert job["problem"] is None
    assert client.delete(place).status_code == 204


def test_a_job_that_waits_is_cancelled_at_once(client: httpx.Client) -> None:
    places = [client.post("/v1/plans", json=SLOW).headers["location"] for _ in range(5)]
    last = client.delete(places[-1])
    assert last.json()["state"] == "cancelled"
    assert [event["event"] for event in events(client, places[-1])] == ["done"]
    for place in places:
        assert client.delete(place).status_code in (202, 204)
    assert {ended(client, place)["state"] for place in places} == {"cancelled"}


def test_the_timeline_of_a_plan(client: httpx.Client, done: str) -> None:
    trace = client.get(done + "/trace")
    assert trace.status_code == 200
    assert any(event["ph"] == "X" for event in trace.json()["traceEvents"])
    running = client.post("/v1/plans", json=SLOW).headers["location"]
    early = client.get(running + "/trace")
    assert early.status_code == 409
    assert early.headers["content-type"] == PROBLEM
    client.delete(running)


@pytest.mark.parametrize("name", ["x", "0" * 32, "0" * 31, "G" * 32, "%2e%2e", "0" * 33])
@pytest.mark.parametrize("kind", ["plans", "what-ifs"])
def test_other_names_are_not_found(client: httpx.Client, kind: str, name: str) -> None:
    place = f"/v1/{kind}/{name}"
    for method, more in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        answer = client.request(method, place + more)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == PROBLEM


def test_a_sweep_is_a_job_whose_rows_come_one_by_one(client: httpx.Client, done: str) -> None:
    values = [0.5, 0.75]
    plan_id = done.rpartition("/")[2]
    body = {"plan_id": plan_id, "sweep": {"device.flops": [f"{v}x" for v in values]}}
    place = client.post("/v1/what-ifs", json=body).headers["location"]
    found = events(client, place)
    rows = [event["data"] for event in found if event["event"] == "row"]
    assert [row["number"] for row in rows] == [0, 1]
    assert [row["total"] for row in rows] == [2, 2]
    job = ended(client, place)
    assert job["kind"] == "what-if"
    assert job["answer"]["rows"] == [row["row"] for row in rows]
    assert job["answer"]["sweep"] == {"path": "device.flops", "values": ["0.5x", "0.75x"]}
    given = client.get(done).json()["answer"]["plan"]
    by_value = {**body, "plan": given}
    del by_value["plan_id"]
    whole = client.post("/v1/what-ifs", json=by_value, headers={"Prefer": "wait=30"})
    assert whole.status_code == 200
    assert whole.json() == job["answer"]
    again = events(client, whole.headers["location"])
    settled = [row["row"]["re_planned"]["search"]["stopped_by"] != "deadline" for row in rows]
    cached = [event["data"]["cached"] for event in again if event["event"] == "row"]
    assert cached == settled


def test_a_question_about_a_found_plan_is_priced_as_it_was_found(client: httpx.Client) -> None:
    asked = {**PLAN, "stack": "megatron", "constraints": {**PLAN["constraints"], "oom_risk": 0.2}}
    found = client.post("/v1/plans", json=asked, headers={"Prefer": "wait=30"})
    report, place = found.json(), found.headers["location"]
    body = {"plan_id": place.rpartition("/")[2], "set": {"device.flops": "0.5x"}}
    answer = client.post("/v1/what-ifs", json=body, headers={"Prefer": "wait=30"}).json()
    assert answer["provenance"]["stack"] == report["provenance"]["stack"]
    assert "megatron" in answer["provenance"]["stack"]
    was = answer["baseline"]["prediction"]["step_time_s"]
    assert was == report["prediction"]["step_time_s"]
    own = {**body, "stack": "shardwright"}
    other = client.post("/v1/what-ifs", json=own, headers={"Prefer": "wait=30"}).json()
    assert "shardwright" in other["provenance"]["stack"]


@pytest.mark.parametrize("plan_id", ["x", "0" * 32])
def test_a_question_about_no_plan(client: httpx.Client, plan_id: str) -> None:
    refused = client.post("/v1/what-ifs", json={"plan_id": plan_id, "set": {"nodes": 2}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/plan_id"
