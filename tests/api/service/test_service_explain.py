"""U5: the terms of an explanation add up exactly, wherever it is asked for.

Seconds: the exact sum of the terms, rounded once, is the step time, to the last bit. Bytes are
whole numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from published.golden_plans import PLANS, plans
from service.services import Service

import shardwright as sw
from shardwright.api.cli.main import run

NAMES = sorted(plans())


def _command_line(path: Path, folder: Path, service: Service) -> Any:
    target = folder / "explain.json"
    assert run(("explain", str(path), "--json", str(target))) == 0
    return json.loads(target.read_text())


def _rest(path: Path, folder: Path, service: Service) -> Any:
    body = {"plan": json.loads(path.read_text()), "include": ["explain"]}
    answer = httpx.post(f"{service.url}/v1/simulations", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _python(path: Path, folder: Path, service: Service) -> Any:
    return json.loads(json.dumps(sw.explain(path).to_document()))


def _client(path: Path, folder: Path, service: Service) -> Any:
    with sw.Client(service.url) as client:
        return json.loads(json.dumps(client.explain(path).to_document()))


WAYS = [_command_line, _rest, _python, _client]


@pytest.mark.parametrize("name", NAMES)
def test_terms_add_up_everywhere_alike(name: str, service: Service, tmp_path: Path) -> None:
    found = [way(PLANS / f"{name}.json", tmp_path, service) for way in WAYS]
    for document in found:
        _check_times(document)
        _check_bytes(document)
    told = [{key: doc[key] for key in ("explain", "prediction", "plan_hash")} for doc in found]
    assert all(each == told[0] for each in told)


def _check_times(document: dict[str, Any]) -> None:
    step_s = document["prediction"]["step_time_s"]
    terms = document["explain"]["terms"]
    assert math.fsum(term["seconds"] for term in terms) == step_s
    assert {t["term"]: t["seconds"] for t in terms} == document["prediction"]["breakdown_s"]
    unclaimed = next(t["seconds"] for t in terms if t["term"] == "unattributed")
    assert abs(unclaimed) <= 0.01 * step_s
    assert math.isclose(sum(term["share"] for term in terms), 1, rel_tol=1e-12)


def _check_bytes(document: dict[str, Any]) -> None:
    rows = document["prediction"]["memory"]
    told = document["explain"]["memory"]
    assert len(rows) == len(told) >= 1
    for row, explained in zip(rows, told, strict=True):
        place = ("stage", "device_group", "tier")
        assert [row[name] for name in place] == [explained[name] for name in place]
        sizes = [term["bytes"] for term in explained["terms"]]
        assert all(isinstance(size, int) for size in sizes)
        assert sum(sizes) == row["reserved_bytes"]


SEARCHES: list[Callable[[Any], Any]] = [
    lambda face: face.plan("gpt2", "4xH100", global_batch=16, seq_len=1024),
    lambda face: face.plan(
        "gpt2", "2xH100", global_batch=16, seq_len=1024, pins=["pp=2", "recompute=none"]
    ),
]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("search", SEARCHES, ids=["free", "pipeline"])
def test_what_a_search_says_adds_up_too(search: Callable[[Any], Any], service: Service) -> None:
    with sw.Client(service.url) as client:
        for face in (sw, client):
            report = search(face).report
            every = [report.prediction, *(other.prediction for other in report.alternatives)]
            for prediction in every:
                assert math.fsum(prediction.breakdown_s.values()) == prediction.step_time_s
                for row in prediction.memory:
                    assert sum(row.by.values()) == row.reserved_bytes
