"""``--tokens``: days, device-hours and cost of a whole training, in every way in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.html.report import report_html
from shardwright.api.server.compute.handlers import check_plan_body, handle_simulation
from shardwright.api.server.compute.requests import PLAN_ADAPTER, SIMULATION_ADAPTER
from shardwright.api.views.answer_text import training_text
from shardwright.api.views.report_view import report_view
from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
GPT2 = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024")
PRICES = {"currency": "EUR", "device_hour": {"H100": 3.0}, "node_hour": {"H100": 1.0}}
TOKENS = 300 * 10**9


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    return str(path)


def check(document: Any, devices: int, *, priced: bool) -> None:
    prediction, training = document["prediction"], document["prediction"]["training"]
    steps = math.ceil(TOKENS / (64 * 1024))
    assert (training["tokens"], training["steps"]) == (TOKENS, steps)
    assert training["time_s"] == pytest.approx(steps * prediction["step_time_s"])
    assert training["device_s"] == pytest.approx(devices * training["time_s"])
    assert training["time_s"] == pytest.approx(TOKENS / prediction["tokens_per_s"], rel=1e-5)
    if priced:
        hours = training["time_s"] / 3600
        assert training["cost"] == pytest.approx(hours * (devices * 3.0 + 1.0))
    else:
        assert "cost" not in training
    assert "training.time_s" in [note["path"] for note in document["assumptions"]]


@pytest.mark.parametrize("verb", [(), ("simulate",)])
def test_the_arithmetic_of_a_training(plan: Plan, prices: str, verb: tuple[str, ...]) -> None:
    asked = (*verb, *GPT2, "--tokens", "300B")
    check(plan(*asked, "--json", "-").document, 8, priced=False)
    check(plan(*asked, "--prices", prices, "--json", "-").document, 8, priced=True)


def test_a_plan_file_is_priced_too(
    plan: Plan, prices: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan("simulate", *GPT2, "--json", "plan.json").code == 0
    asked = ("simulate", "plan.json", "--tokens", "3e11", "--prices", prices)
    check(plan(*asked, "--json", "-").document, 8, priced=True)
    shown = " ".join(plan(*asked).out.split())
    assert "training: 300 B tokens in 4,577,637 steps" in shown
    assert " days ± 25 % " in shown
    assert " device-hours " in shown
    assert " EUR " in shown
    assert max(map(len, plan(*asked).out.splitlines())) <= 100


def test_python_page_and_notebook_have_it() -> None:
    handle = sw.simulate("gpt2", "8xH100", global_batch=64, seq_len=1024, tokens=TOKENS,
                         prices=PRICES)  # fmt: skip
    check(handle.report.to_document(), 8, priced=True)
    text = training_text(handle.prediction)
    assert text in report_html(handle.report)
    assert ("training", text) in report_view(handle.report, MemoryRule())["facts"]
    again = sw.simulate(handle.plan, tokens="0.3T").report.to_document()
    check(again, 8, priced=False)
    with pytest.raises(InputError, match=r"^tokens: got 2TB; .* nearest: 2T"):
        sw.plan("gpt2", "8xH100", global_batch=64, seq_len=1024, tokens="2TB")


@pytest.mark.parametrize("tokens", ["300B", TOKENS, 3e11])
def test_the_service_has_it(tokens: object) -> None:
    question = {"model": "gpt2", "cluster": "8xH100",
                "workload": {"global_batch": 64, "seq_len": 1024}, "tokens": tokens}  # fmt: skip
    body = SIMULATION_ADAPTER.validate_json(json.dumps({**question, "prices": PRICES}))
    check(handle_simulation(body), 8, priced=True)
    check_plan_body(PLAN_ADAPTER.validate_json(json.dumps(question)))
    bad = PLAN_ADAPTER.validate_json(json.dumps({**question, "tokens": "2 boxes"}))
    with pytest.raises(InputError, match=r"^--tokens: got 2 boxes"):
        check_plan_body(bad)
