"""What a body's faults are answered with: the place, what is allowed, the nearest, no input."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from shardwright.api.server.compute.operations import run_operation

WORK = {"global_batch": 8, "seq_len": 64}
PLAN: dict[str, Any] = {"model": "gpt2", "cluster": "2xH100", "workload": WORK}
PARTS = "allowed: model, cluster; parts: workload, constraints; "
SENT = "sent-by-somebody"
UNKNOWN: list[tuple[str, dict[str, Any], str, str]] = [
    ("check-plan", {**PLAN, "batch_size": 3}, "/batch_size", "/workload/global_batch"),
    ("check-plan", {**PLAN, "seq_len": 64}, "/seq_len", "/workload/seq_len"),
    ("check-plan", {**PLAN, "pins": ["tp=2"]}, "/pins", "/constraints/pins"),
    ("check-plan", {**PLAN, "tp": 2}, "/tp", '/constraints/pins: ["tp=…"]'),
    ("check-plan", {**PLAN, "timeout": 3}, "/timeout", "deadline_s"),
    ("check-plan", {**PLAN, "workload": {**WORK, "optimiser": "lion"}}, "/workload/optimiser",
     "optimizer"),
    ("simulation", {**PLAN, "strategy": {"tensor_parallel": 2}}, "/strategy/tensor_parallel", "tp"),
    ("check-what-if", {"plan_id": "1", "sets": {}}, "/sets", "set"),
    ("check-run", {"plan_id": "1", "steps": 3, "deadline": 3}, "/deadline", "deadline_s"),
]  # fmt: skip
VALUES: list[tuple[str, dict[str, Any], str, str]] = [
    ("check-plan", {**PLAN, "prefer": "bst"}, "/prefer", "best"),
    ("simulation", {**PLAN, "overlap": "dp+tpp"}, "/overlap", "dp+tp"),
    ("check-plan", {**PLAN, "workload": {**WORK, "global_batch": "8"}}, "/workload/global_batch",
     "8"),
    ("check-plan", {**PLAN, "workload": {**WORK, "seq_len": 64.4}}, "/workload/seq_len", "64"),
    ("check-plan", {**PLAN, "workload": {**WORK, "seq_len": 0}}, "/workload/seq_len", "1"),
    ("check-plan", {**PLAN, "constraints": {"top": 1000}}, "/constraints/top", "100"),
    ("check-plan", {**PLAN, "stack": "megatrn"}, "/stack",
     "megatron, megatron-bridge, galvatron"),
]  # fmt: skip


def fault_of(operation: str, body: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The problem that a body ends with, and its first fault."""
    status, answer = run_operation(operation, json.dumps(body).encode(), 10.0)
    assert status == 422
    document = json.loads(answer)
    return document, document["errors"][0]


@pytest.mark.parametrize(("operation", "body", "pointer", "near"), [*UNKNOWN, *VALUES])
def test_a_fault_names_the_nearest(
    operation: str, body: dict[str, Any], pointer: str, near: str
) -> None:
    document, fault = fault_of(operation, body)
    assert fault["pointer"] == pointer
    assert fault["msg"].rpartition("; nearest: ")[2] == near
    assert document["detail"] == f"{pointer}: {fault['msg']}"
    assert (operation, body, pointer, near) in VALUES or fault["msg"].startswith("allowed: ")


def test_what_resembles_nothing_is_listed_against_all() -> None:
    _, fault = fault_of("check-plan", {**PLAN, SENT: 3})
    assert fault["msg"].startswith(PARTS)
    assert "nearest" not in fault["msg"]
    assert fault["pointer"] == f"/{SENT}"


def test_several_faults_are_counted_and_a_missing_key_said() -> None:
    document, fault = fault_of("check-plan", {"model": "gpt2"})
    assert fault == {"pointer": "/cluster", "msg": "allowed: a value; the key is required"}
    assert document["detail"] == f"/cluster: {fault['msg']}; 1 more: see errors"
    assert len(document["errors"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {**PLAN, "prefer": SENT},
        {**PLAN, "workload": {**WORK, "seq_len": SENT}},
        {**PLAN, "workload": SENT},
        {**PLAN, "constraints": {"pins": SENT}},
        [SENT],
    ],
)
def test_what_was_sent_is_not_repeated(body: Any) -> None:
    document, fault = fault_of("check-plan", body)
    assert SENT not in json.dumps(document)
    assert len(document["detail"]) <= 300
    assert fault["msg"]


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/what-if", "/doc"])
def test_a_path_that_there_is_not_names_the_nearest(service: Any, path: str) -> None:
    answer = httpx.get(service.url + path)
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith(f"GET /docs shows what there is; nearest: {path}")


def test_answers_begin_with_plan_prediction_and_search() -> None:
    _, answer = run_operation("plan", json.dumps(PLAN).encode(), 20.0)
    keys = list(json.loads(answer))
    assert keys[:3] == ["plan", "prediction", "search"]
    assert keys[3:] == sorted(keys[3:])
    body = {**PLAN, "include": ["explain"]}
    _, answer = run_operation("simulation", json.dumps(body).encode(), 20.0)
    keys = list(json.loads(answer))
    assert keys[:2] == ["plan", "prediction"]
    assert keys[2:] == sorted(keys[2:])
