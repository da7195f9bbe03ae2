"""``--expert-load`` from the command line, Python, requests and what-if questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.what_if.inputs import question_of, with_traces_read
from shardwright.datasets.catalogue.stack import stack
from shardwright.planner.what_if.changes import changed
from shardwright.planner.what_if.question import rows_of
from shardwright.planner.what_if.setting import Change, Setting
from shardwright.spec.errors import InputError
from shardwright.spec.inputs.routing_trace import RoutingRow, trace_text
from shardwright.spec.plan.plan import load_plan
from shardwright.spec.workload.expert_load import PowerLoad, RoutedLoad

Plan = Callable[..., Any]
SIZES = {"global_batch": 32, "seq_len": 512}
QUESTION = ("--model", "mixtral-8x7b", "--cluster", "2x8xH100", "--global-batch", "32",
            "--seq-len", "512", "--ep", "8", "--shard", "zero3")  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "routing.csv"
    rows = (
        RoutingRow(step, layer, expert, 10 + 10 * (expert == layer % 8))
        for step in (1, 2, 3)
        for layer in range(1, 33)
        for expert in range(8)
    )
    path.write_text(trace_text(rows))
    return str(path)


def simulated(plan: Plan, *flags: str) -> Any:
    return plan("simulate", *QUESTION, *flags, "--json", "-").document


def simulated_setting(plan: Plan) -> Setting:
    given = load_plan(json.dumps(simulated(plan)["plan"]), "plan")
    return Setting(
        model=given.model,
        cluster=given.cluster,
        workload=given.workload,
        stack=stack("shardwright"),
    )


def test_a_load_makes_a_step_longer_and_even_leaves_the_plan_alone(plan: Plan, trace: str) -> None:
    plain, even = simulated(plan), simulated(plan, "--expert-load", "even")
    assert even["plan_hash"] == plain["plan_hash"]
    for flag in ("power:1", trace):
        found = simulated(plan, "--expert-load", flag)
        assert found["prediction"]["step_time_s"] > plain["prediction"]["step_time_s"]
        assert found["prediction"]["hfu"] < plain["prediction"]["hfu"]
        assert found["plan"]["workloads"]["main"]["expert_load"]["kind"] in ("power", "trace")


def test_explain_says_fullest_over_mean(plan: Plan, trace: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(simulated(plan, "--expert-load", trace)))
    found = plan("explain", str(path), "--json", "-").document
    assert [row["fullest"] for row in found["explain"]["exchanges"]] == [
        pytest.approx(1.78, rel=0.03)
    ]
    assert "times the mean rank's rows" in plan("explain", str(path)).out


def test_a_what_if_changes_the_load(plan: Plan) -> None:
    setting = simulated_setting(plan)
    found, change = changed(setting, "expert_load", "power:1", "--set")
    assert change == Change("expert_load", "even", "power:1")
    assert found.workload.expert_load == PowerLoad(exponent=1.0)
    assert changed(found, "expert_load", "even", "--set")[0] == setting
    with pytest.raises(InputError, match="even or power:A"):
        changed(setting, "expert_load", "routing.csv", "--set")


def test_a_what_if_reads_a_trace_and_refuses_one_of_another_model(
    plan: Plan, trace: str, tmp_path: Path
) -> None:
    """The service hands its questions on unread: it opens no file that a request names."""
    setting = simulated_setting(plan)
    unread = question_of([f"expert_load={trace}"])
    with pytest.raises(InputError, match="--set expert_load: got "):
        rows_of(unread, setting)
    (row,) = rows_of(with_traces_read(unread), setting)
    assert isinstance(row.setting.workload.expert_load, RoutedLoad)
    assert row.changes[0].now.startswith("trace")
    short = tmp_path / "short.csv"
    short.write_text(trace_text(RoutingRow(1, 1, expert, 10) for expert in range(8)))
    with pytest.raises(InputError, match="got a routing trace; allowed: a load of this model"):
        rows_of(with_traces_read(question_of({"expert_load": str(short)})), setting)
    with pytest.raises(InputError, match=r"nothing\.csv: got no such file"):
        with_traces_read(question_of(["expert_load=nothing.csv"]))


def test_python_and_requests_take_a_load(trace: str) -> None:
    strategy = {"ep": 8, "shard": "zero3"}
    handle = sw.simulate("mixtral-8x7b", "2x8xH100", **SIZES, **strategy, expert_load=trace)  # type: ignore[arg-type]
    workload = handle.report.plan.to_document()["workloads"]["main"]
    body = {"model": "mixtral-8x7b", "cluster": "2x8xH100", "strategy": strategy}
    for load in ("power:1", workload["expert_load"]):
        asked = {**body, "workload": {**SIZES, "expert_load": load}}
        status, answer = run_operation("simulation", json.dumps(asked).encode(), 60.0)
        assert status == 200, answer
    assert json.loads(answer)["prediction"]["step_time_s"] == handle.report.prediction.step_time_s
    asked = {**body, "workload": {**SIZES, "expert_load": "/etc/passwd"}}
    status, answer = run_operation("simulation", json.dumps(asked).encode(), 60.0)
    assert status == 422, answer


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--expert-load", "odd"), "--expert-load: got odd"),
        (("--expert-load", "power:x"), "nearest: power:1"),
        (("--model", "llama-3-8b", "--ep", "1", "--expert-load", "power:1"), "has none"),
    ],
)
def test_another_load_is_refused_in_a_line(plan: Plan, flags: tuple[str, ...], words: str) -> None:
    done = plan("simulate", *QUESTION, *flags)
    assert done.code == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_trace_of_another_model_is_refused(plan: Plan, trace: str) -> None:
    done = plan("simulate", *QUESTION, "--model", "mixtral-8x22b", "--expert-load", trace)
    assert done.code == 2
    assert "a routing trace of 32 layers (1 to 32); the model has experts in 56 layers" in done.err
