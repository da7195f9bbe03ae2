"""Imports, diagnoses and sizes over HTTP: the command's answers, and no file but the sent text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.services import Service

import shardwright as sw
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.server.openapi.files import (
    DIAGNOSIS_ANSWER_EXAMPLE,
    DIAGNOSIS_EXAMPLE,
    IMPORT_ANSWER_EXAMPLE,
    IMPORT_EXAMPLE,
)
from shardwright.api.server.openapi.sizes import SIZE_ANSWER_EXAMPLE, SIZE_EXAMPLE
from shardwright.spec.errors import InputError

SAMPLES = Path(__file__).parents[1] / "diagnose" / "samples"
TINY = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "name": "tiny"}
WAYS: dict[str, Any] = {"model": TINY, "tokens": "1M", "cluster": "2xA100-80GB",
                        "workload": {"global_batch": 8, "seq_len": 128}}  # fmt: skip
AXOLOTL = "micro_batch_size: 2\ngradient_accumulation_steps: 2\nsequence_len: 1024\n"


def answer(operation: str, body: dict[str, Any]) -> Any:
    status, text = run_operation(operation, json.dumps(body).encode(), 60.0)
    return status, json.loads(text)


def written(tmp_path: Path) -> Path:
    file = tmp_path / IMPORT_EXAMPLE["file"]["name"]
    file.write_text(IMPORT_EXAMPLE["file"]["text"])
    return file


def test_an_import_is_that_of_python_and_of_the_client(service: Service, tmp_path: Path) -> None:
    file = written(tmp_path)
    here = sw.import_plan(file, "8xH100-80GB", model="gpt2")
    with sw.Client(service.url) as client:
        there = client.import_plan(file, "8xH100-80GB", model="gpt2")
        assert there.report == here.report
        assert there.simulate().prediction == here.prediction
    found = httpx.post(service.url + "/v1/imports", json=IMPORT_EXAMPLE, timeout=30).json()
    assert found["plan_hash"] == here.plan.hash
    assert set(found) == set(IMPORT_ANSWER_EXAMPLE)


def test_a_diagnosis_is_that_of_python_and_of_the_client(service: Service, tmp_path: Path) -> None:
    file = written(tmp_path)
    here = sw.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=0.2).to_document()
    with sw.Client(service.url) as client:
        there = client.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=0.2)
        assert {**there.to_document(), "source": ""} == json.loads(
            json.dumps({**here, "source": ""})
        )
        with pytest.raises(InputError, match=r"path: got 'train.args'.*0.006"):
            client.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=1e-6, tp=2)
    assert "<svg" in there._repr_html_()


def test_the_examples_keys_are_those_of_answers() -> None:
    status, found = answer("diagnosis", DIAGNOSIS_EXAMPLE)
    assert status == 200
    assert set(found) == set(DIAGNOSIS_ANSWER_EXAMPLE)
    assert set(found["waterfall"]) == set(DIAGNOSIS_ANSWER_EXAMPLE["waterfall"])
    [change, *_] = found["changes"]["alone"]
    assert set(change) == set(DIAGNOSIS_ANSWER_EXAMPLE["changes"]["alone"][0])
    status, found = answer("check-size", SIZE_EXAMPLE)
    assert status == 200


@pytest.mark.parametrize("kind", ["megatron", "torchtitan"])
def test_a_log_is_read_as_text(kind: str) -> None:
    text = (SAMPLES / f"{kind}.log").read_text()
    body = {"file": {"name": f"{kind}.log", "text": text}, "cluster": "8xH100-80GB"}
    status, found = answer("diagnosis", body)
    if status == 200:
        assert found["log"] == kind
        assert found["noise"]["steps"] > 0
    else:  # what the log leaves out is asked for by its place in the body
        assert found["errors"][0]["pointer"] in ("/model", "/cluster", "/workload/seq_len")
