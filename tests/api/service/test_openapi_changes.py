"""No change of the service's description breaks who keeps to a released one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from service.openapi_changes import DOCUMENT, breaking, contract, released

NOW = contract(json.loads(DOCUMENT.read_text(encoding="utf-8")))
Change = Callable[[dict[str, Any]], Any]
MEANT = {
    "0.1.0": [
        # Longer ones worked for minutes and gigabytes, or were an internal error.
        "POST /v1/plans: request.workload.seq_len has the maximum 1073741824 now",
        "POST /v1/simulations: request.workload.seq_len has the maximum 1073741824 now",
    ]
}
"""What is taken from clients of a release all the same, with the reason; CHANGELOG.md says it."""


@pytest.mark.parametrize("version", released())
def test_nothing_that_was_released_is_taken_away(version: str) -> None:
    lost = breaking(released()[version], NOW)
    told = f"docs/openapi.json breaks clients of {version}:\n" + "\n".join(lost)
    assert lost == MEANT.get(version, []), told


def test_there_is_a_released_description() -> None:
    assert len(released()) >= 1
    assert len(released()["0.1.0"]["paths"]) >= 15
    assert breaking(NOW, NOW) == []


def _schemas(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def _post(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"]["/v1/plans"]["post"]
    return found


BREAKING: list[tuple[Change, str]] = [
    (lambda d: d["paths"].pop("/v1/simulations"), "POST /v1/simulations: the operation is gone"),
    (lambda d: d["paths"]["/v1/plans/{job_id}"].pop("delete"), "DELETE /v1/plans/{job_id}: the"),
    (lambda d: _post(d).update(operationId="makePlan"), "createPlan is now makePlan"),
    (lambda d: _post(d)["responses"].pop("202"), "POST /v1/plans: status 202 is gone"),
    (lambda d: _schemas(d)["PlanBody"]["required"].append("stack"), ".stack is required now"),
    (lambda d: _schemas(d)["PlanBody"]["properties"].pop("stack"), "request.stack is gone"),
    (lambda d: _schemas(d)["Prediction"]["properties"].pop("mfu"), "prediction.mfu is gone"),
    (lambda d: _schemas(d)["Prediction"]["required"].remove("mfu"), "mfu may be left out now"),
    (lambda d: _schemas(d)["NewJob"]["properties"]["id"].update(type="integer"), "id may be int"),
    (lambda d: _post(d)["parameters"][0].update(required=True), "is required now"),
    (lambda d: _post(d)["parameters"].pop(), "is gone"),
    (lambda d: _schemas(d)["RunBody"]["properties"]["steps"].update(maximum=5), "maximum 5 now"),
    (lambda d: _schemas(d)["RunBody"]["properties"]["steps"].update(type="string"), "takes no int"),
    (lambda d: _schemas(d)["WhatIfBody"]["properties"]["scale"]["anyOf"][0]["enum"].remove("fixed"),
     "does not take fixed"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "line"), BREAKING, ids=[line for _, line in BREAKING])
def test_what_breaks_is_named(change: Change, line: str) -> None:
    later = copy.deepcopy(NOW)
    change(later)
    assert any(line in found for found in breaking(NOW, later)), breaking(NOW, later)


HARMLESS: list[Change] = [
    lambda d: d["paths"].update({"/v2/plans": _post(d)}),
    lambda d: _post(d)["responses"].update({"418": {"description": "no"}}),
    lambda d: _schemas(d)["PlanBody"]["properties"].update({"colour": {"type": "string"}}),
    lambda d: _schemas(d)["Prediction"]["properties"].update({"joules": {"type": "number"}}),
    lambda d: _schemas(d)["Prediction"]["required"].append("cost_per_step"),
    lambda d: _schemas(d)["PlanBody"]["required"].remove("workload"),
    lambda d: _schemas(d)["RunBody"]["properties"]["steps"].update(maximum=10**9),
    lambda d: d["info"].update(version="9.9.9"),
]


@pytest.mark.parametrize("change", HARMLESS, ids=range(len(HARMLESS)))
def test_what_only_adds_is_no_break(change: Change) -> None:
    later = copy.deepcopy(NOW)
    change(later)
    assert breaking(NOW, later) == []
