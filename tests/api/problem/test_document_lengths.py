"""Documents' lengths from every way in: a path on the command line, a histogram in requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.client.bodies import problem_body
from shardwright.api.server.compute.operations import run_operation
from shardwright.datasets.pipelines.shipped import STAGES
from shardwright.datasets.preparation.prepare import prepare
from shardwright.datasets.recipes.recipe import recipe_of

Plan = Callable[..., Any]
SIZES = {"global_batch": 16, "seq_len": 128}
ASKED = ("simulate", "--model", "llama-2-7b", "--cluster", "1x8xH100", "--tp", "8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lengths")
    records = [{"id": str(n), "text": f"text {n} " * (n % 5 + 1)} for n in range(60)]
    (folder / "part.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    keys = {"sources": [{"name": "s", "domain": "d", "path": "part.jsonl"}]}
    keys["windows"] = {"tokens": 256, "order": "fit"}  # type: ignore[assignment]
    prepare(recipe_of(keys, "recipe", STAGES), folder, folder / "out", STAGES)
    return folder / "out" / "data.json"


def test_all_ways_in_give_one_plan(plan: Plan, data: Path, tmp_path: Path) -> None:
    handle = sw.simulate("llama-2-7b", "1x8xH100", tp=8, lengths=data, **SIZES)  # type: ignore[arg-type]
    report = tmp_path / "report.json"
    flags = ("--global-batch", "16", "--seq-len", "128", "--lengths", str(data))
    done = plan(*ASKED, *flags, "--json", str(report))
    assert done.code == 0, done.err
    assert "documents of" in done.out
    found = json.loads(report.read_text())
    assert found["plan"] == handle.plan.to_document()
    body = problem_body("llama-2-7b", "1x8xH100", {**SIZES, "lengths": str(data)})
    asked = json.dumps({**body, "strategy": {"tp": 8}}).encode()
    status, answer = run_operation("simulation", asked, 60.0)
    assert status == 200, answer
    assert json.loads(answer)["plan"] == found["plan"]
    body["workload"]["lengths"] = str(data)
    status, answer = run_operation("simulation", json.dumps(body).encode(), 60.0)
    assert status == 422, answer


def test_what_if_takes_them_away(plan: Plan, data: Path, tmp_path: Path) -> None:
    handle = sw.simulate("llama-2-7b", "1x8xH100", tp=8, lengths=data, **SIZES)  # type: ignore[arg-type]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(handle.plan.to_document()))
    done = plan("what-if", str(path), "--set", "lengths=one")
    assert done.code == 0, done.err
    assert "one document" in done.out
    done = plan("what-if", str(path), "--set", "lengths=two")
    assert done.code == 2
    assert "one" in done.err


@pytest.mark.parametrize(
    ("given", "words"),
    [("missing.json", "missing.json"), ("", "--seq-len: got 96"), ("other", "plan data")],
)
def test_bad_input_is_one_line(
    plan: Plan, given: str, words: str, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    path = {"": str(data), "other": str(other)}.get(given, given)
    flags = ("--global-batch", "16", "--seq-len", "96", "--lengths", path)
    done = plan(*ASKED, *flags)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1
