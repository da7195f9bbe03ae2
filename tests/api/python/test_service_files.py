"""Imports, diagnoses and sizes over HTTP: the command's answers, and no file but the sent text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.services import Service

import shardwright as sw
from shardwright.api.diagnose.measured_run import RunQuestion, measured_run
from shardwright.api.problem.resolve import Inputs
from shardwright.api.server.compute import size_handler
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.server.openapi.files import (
    DIAGNOSIS_ANSWER_EXAMPLE,
    DIAGNOSIS_EXAMPLE,
    IMPORT_ANSWER_EXAMPLE,
    IMPORT_EXAMPLE,
)
from shardwright.api.server.openapi.sizes import SIZE_ANSWER_EXAMPLE, SIZE_EXAMPLE
from shardwright.api.size.training_size import training_size
from shardwright.spec.errors import InputError

SAMPLES = Path(__file__).parents[1] / "diagnose" / "samples"
TINY = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "name": "tiny"}
WAYS: dict[str, Any] = {"model": TINY, "tokens": "1M", "cluster": "2xA100-80GB",
                        "workload": {"global_batch": 8, "seq_len": 128}}  # fmt: skip
AXOLOTL = "micro_batch_size: 2\ngradient_accumulation_steps: 2\nsequence_len: 1024\n"


def answer(operation: str, body: dict[str, Any]) -> Any:
    status, text = run_operation(operation, json.dumps(body).encode(), 60.0)
    return status, json.loads(text.splitlines()[-1] if operation.startswith("check") else text)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The example's file in this folder, for assumptions name it as it was given."""
    monkeypatch.chdir(tmp_path)
    name: str = IMPORT_EXAMPLE["file"]["name"]
    Path(name).write_text(IMPORT_EXAMPLE["file"]["text"])
    return name


def test_an_import_is_that_of_python_and_of_the_client(service: Service, file: str) -> None:
    here = sw.import_plan(file, "8xH100-80GB", model="gpt2")
    with sw.Client(service.url) as client:
        there = client.import_plan(file, "8xH100-80GB", model="gpt2")
        assert there.report == here.report
        assert there.stack == here.stack
    found = httpx.post(service.url + "/v1/imports", json=IMPORT_EXAMPLE, timeout=30).json()
    assert found["plan_hash"] == here.plan.hash
    assert set(found) == set(IMPORT_ANSWER_EXAMPLE)


def test_a_diagnosis_is_that_of_python_and_of_the_client(service: Service, file: str) -> None:
    here = sw.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=0.2).to_document()
    with sw.Client(service.url) as client:
        there = client.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=0.2)
        assert there.to_document() == json.loads(json.dumps(here))
        with pytest.raises(InputError, match=r"measured_step_s: got 1e-06; .*at least 0.006"):
            client.diagnose(file, "8xH100-80GB", model="gpt2", measured_step_s=1e-6)
        Path("b.args").write_text("--no-such-flag 1")
        with pytest.raises(InputError, match=r"path: got b.args; allowed: a file of megatron"):
            client.import_plan("b.args", "8xH100-80GB")
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


LOGS = {
    "megatron": Inputs(cluster="8x8xH100-80GB"),
    "trainer": Inputs(cluster="8xH100-80GB", model="llama-3-8b", seq_len=4096),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_is_read_as_text(kind: str) -> None:
    file, name = SAMPLES / f"{kind}.log", "run.log"
    texts = {name: file.read_text()}
    there = measured_run(RunQuestion(path=name, given=LOGS[kind], texts=texts))
    here = measured_run(RunQuestion(path=str(file), given=LOGS[kind]))
    assert there.log_kind == kind
    assert (there.plan, there.noise, there.measured_s) == (here.plan, here.noise, here.measured_s)


FILE = IMPORT_EXAMPLE["file"]
CURVE = {"model": TINY, "device": "A100-80GB", "tokens": "1M"}
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "another file": (
        "import",
        {"file": {"name": "a.yml", "text": f"base_model: gpt2\ndeepspeed: z.json\n{AXOLOTL}"},
         "cluster": "2xH100"},
        "/file/text", "those that it names are not opened",
    ),
    "a model's path": (
        "import",
        {"file": {"name": "a.yml", "text": f"base_model: /etc/x.json\n{AXOLOTL}"},
         "cluster": "2xH100"},
        "/model", "a.yml names none that is known here",
    ),
    "a path for a name": (
        "import", {**IMPORT_EXAMPLE, "file": {**FILE, "name": "../a"}}, "/file/name", "pattern",
    ),
    "a key of a wrong type": (
        "import",
        {**IMPORT_EXAMPLE,
         "file": {**FILE, "text": FILE["text"].replace("size 2 --u", "size b --u")}},
        "/file/text", "at tensor_model_parallel_size, a whole number",
    ),
    "a python file": (
        "import", {**IMPORT_EXAMPLE, "file": {"name": "a.py", "text": "x = 1"}}, "/file/text",
        "Python is not run",
    ),
    "no framework's keys": (
        "import", {**IMPORT_EXAMPLE, "file": {"name": "a.json", "text": '{"x": 1}'}}, "/file/text",
        "or framework",
    ),
    "no cluster": ("import", {"file": FILE, "model": "gpt2"}, "/cluster", "8xH100-80GB"),
    "no figure": ("diagnosis", IMPORT_EXAMPLE, "/measured_step_s", "or tokens_per_s of all"),
    "too short a step": (
        "diagnosis", {**IMPORT_EXAMPLE, "measured_step_s": 1e-6}, "/measured_step_s", "at least",
    ),
    "no steps": (
        "diagnosis", {"file": {"name": "a.log", "text": "nothing"}, "cluster": "2xH100"},
        "/file/text", "step times",
    ),
    "a config of the log's name": (
        "diagnosis", {**DIAGNOSIS_EXAMPLE, "config": FILE}, "/config/name", "another name",
    ),
    "no place": ("check-size", {"model": TINY, "tokens": "1M"}, "/device", "or a cluster"),
    "both places": ("check-size", {**CURVE, "cluster": "2xH100"}, "/device", "or a cluster"),
    "a cluster file": ("check-size", {**CURVE, "device": "A100-80GB@x.json"}, "/device", "FABRIC"),
    "no such device": ("check-size", {**CURVE, "device": "A1000"}, "/device", "nearest: A100"),
    "a time in words": ("check-size", {**CURVE, "within": "soon"}, "/within", "nearest: 30d"),
    "no prices": ("check-size", {**CURVE, "budget": 5.0}, "/prices", "device_hour"),
    "no tokens": ("check-size", {**CURVE, "tokens": "many"}, "/tokens", "nearest: 300B"),
    "a date of a fine-tuning": ("check-size", {**WAYS, "within": "3d"}, "/within", "nothing"),
    "a model file": ("check-size", {**CURVE, "model": "/etc/passwd"}, "/model", "a preset"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_by_its_place(name: str) -> None:
    operation, body, pointer, words = MISTAKES[name]
    status, found = answer(operation, body)
    assert status == 422
    assert found["errors"][0]["pointer"] == pointer
    assert words in found["errors"][0]["msg"]
    assert "--" not in found["detail"].replace("command-line", "").partition("Python")[0]


def test_a_fine_tuning_answers_at_once_and_a_search_is_a_job(service: Service) -> None:
    place = service.url + "/v1/sizes"
    found = httpx.post(place, json=WAYS, timeout=60)
    assert found.status_code == 200, found.text
    here = sw.size(TINY, "1M", cluster="2xA100-80GB", global_batch=8, seq_len=128).to_document()
    assert [way["hours"] for way in found.json()["ways"]] == [way["hours"] for way in here["ways"]]
    later = httpx.post(place, json=WAYS, headers={"Prefer": "respond-async"}, timeout=60)
    assert later.status_code == 202
    job = httpx.post(place, json={**CURVE, "within": "30d"}, timeout=60)
    assert (job.status_code, job.json()["kind"]) == (202, "size")
    assert httpx.delete(service.url + job.headers["location"]).status_code in (202, 204)


def test_a_curve_shows_its_first_table_and_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    short = lambda question, show: training_size(replace(question, most=16), show)  # noqa: E731
    monkeypatch.setattr(size_handler, "training_size", short)
    events: list[tuple[str, Any]] = []
    body = {**CURVE, "within": "30d", "deadline_s": 1.0,
            "workload": {"global_batch": 8, "seq_len": 128}}  # fmt: skip
    status, text = run_operation(
        "size", json.dumps(body).encode(), 200.0, lambda n, d: events.append((n, json.loads(d)))
    )
    found = json.loads(text)
    assert (status, set(found)) == (200, set(SIZE_ANSWER_EXAMPLE))
    assert set(found["points"][0]) == set(SIZE_ANSWER_EXAMPLE["points"][0])
    [(name, table)] = events
    assert name == "curve"
    assert [p["devices"] for p in table["points"]] == [p["devices"] for p in found["points"]]
    assert found["answer"] == 8
    assert found["points"][0]["searched"]
