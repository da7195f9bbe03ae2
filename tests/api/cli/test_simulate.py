"""``plan simulate`` and ``plan explain``: prices that add up, also of what does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.spec.report.timeline import from_perfetto

Plan = Callable[..., Any]
GPT2 = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024")
STRATEGY = ("--tp", "2", "--pp", "2", "--shard", "zero2")


def test_simulation_document_has_no_search(base_report: Any) -> None:
    assert set(base_report) == {
        "plan", "plan_hash", "prediction", "assumptions", "source_share", "provenance",
    }  # fmt: skip


def test_flags_left_out_are_assumptions(plan: Plan) -> None:
    report = plan("simulate", *GPT2, "--json", "-").document
    assumed = {note["path"]: note["value"] for note in report["assumptions"]}
    expected = {
        "--tp": 1, "--pp": 1, "--vpp": 1, "--cp": 1, "--ep": 1, "--etp": 1, "--dp": 8,
        "--micro-batch": 1, "--sp": "none", "--shard": "zero0", "--recompute": "none",
        "--schedule": "1f1b", "workload.dtype": "bf16", "workload.optimizer": "adamw",
        "stack": "shardwright", "stack.attention": "flash",
    }  # fmt: skip
    assert expected.items() <= assumed.items()
    given = plan("simulate", *GPT2, "--tp", "2", "--stack", "megatron", "--json", "-").document
    assert {"--tp", "stack"}.isdisjoint(note["path"] for note in given["assumptions"])


def test_adapters_are_assumed_in_full(plan: Plan) -> None:
    arguments = ("simulate", *GPT2, "--trainable", "lora:rank=8", "--json", "-")
    assumed = {note["path"]: note["value"] for note in plan(*arguments).document["assumptions"]}
    assert assumed["workload.trainable"] == "lora:rank=8,alpha=16,targets=query,value"


def test_the_head_of_a_report_counts_active_parameters(plan: Plan) -> None:
    experts = ("--model", "mixtral-8x7b", "--cluster", "8xH200", "--global-batch", "8")
    shown = plan("simulate", *experts, "--seq-len", "512", "--ep", "8")
    assert shown.out.startswith("mixtral-8x7b (46.7 B parameters, 12.9 B active), 8 x 512 tokens")
    assert "active" not in plan("simulate", *GPT2).out.splitlines()[0]


def test_what_does_not_fit_is_priced_and_the_excess_named(plan: Plan) -> None:
    arguments = ("simulate", "--model", "llama-3-70b", "--cluster", "8xH100", "--tp", "8")
    arguments += ("--global-batch", "8", "--seq-len", "4096")
    shown = plan(*arguments)
    assert shown.code == 0
    assert "does not fit: hbm of stage 0" in shown.out
    assert "over by" in shown.out
    result = plan(*arguments, "--json", "-")
    assert result.code == 0
    assert result.err.startswith("does not fit: hbm of stage 0")
    assert result.err.count("\n") == 1
    assert result.document["prediction"]["feasible"] is False


def _with_memory(report: Any, hbm_bytes: int) -> str:
    document = json.loads(json.dumps(report["plan"]))
    document["cluster"]["groups"][0]["memory"]["hbm_bytes"] = hbm_bytes
    return json.dumps(document)


def test_one_byte_decides(plan: Plan, base_report: Any, tmp_path: Path) -> None:
    worst = max(row["reserved_bytes"] for row in base_report["prediction"]["memory"])
    enough = math.ceil(worst * MemoryRule().margin)
    target = tmp_path / "plan.json"
    for capacity, fits in ((enough, True), (enough - 1, False)):
        target.write_text(_with_memory(base_report, capacity))
        result = plan("simulate", str(target), "--json", "-")
        assert result.code == 0
        assert result.document["prediction"]["feasible"] is fits


def test_memory_cap_is_the_capacity(plan: Plan) -> None:
    report = plan("simulate", *GPT2, "--memory-gib", "40", "--json", "-").document
    assert {row["capacity_bytes"] for row in report["prediction"]["memory"]} == {40 * 2**30}


def test_trace_is_a_timeline_of_the_step(plan: Plan, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    result = plan("simulate", *GPT2, *STRATEGY, "--trace", str(target), "--json", "-")
    assert result.code == 0
    timeline = from_perfetto(target.read_text(), str(target))
    assert timeline.overlapping() == []
    step_s = result.document["prediction"]["step_time_s"]
    assert math.isclose(timeline.step_time_s, step_s, rel_tol=1e-6)


def test_many_stages_are_shown_in_few_rows(plan: Plan) -> None:
    arguments = ("--model", "llama-3.1-405b", "--cluster", "126xH100", "--pp", "126")
    result = plan(
        "simulate", "--cluster", "126x1xH100", *arguments[:2], "--pp", "63", "--tp", "1",
        "--global-batch", "126", "--seq-len", "1024",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "more rows" in result.out
    assert len(result.out.splitlines()) < 70


def test_explanation_adds_up(plan: Plan, base_report: Any, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text(json.dumps(base_report))
    document = plan("explain", str(target), "--json", "-").document
    prediction, explained = document["prediction"], document["explain"]
    seconds = sum(term["seconds"] for term in explained["terms"])
    assert math.isclose(seconds, prediction["step_time_s"], rel_tol=1e-9)
    assert math.isclose(sum(term["share"] for term in explained["terms"]), 1)
    assert explained["critical_stage"] in (0, 1)
    assert len(explained["busy_s"]) == 2
    for row, part in zip(prediction["memory"], explained["memory"], strict=True):
        assert sum(term["bytes"] for term in part["terms"]) == row["reserved_bytes"]
    assert document["plan_hash"] == base_report["plan_hash"]


def test_explanation_on_a_terminal(plan: Plan, base_report: Any, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text(json.dumps(base_report["plan"]))
    result = plan("explain", str(target))
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 100
    for words in ("matmul", "bubble", "sum ", "100.0 %", "sum = reserved", "capacity", "analytic"):
        assert words in result.out, words
    rows = [line.split() for line in result.out.splitlines()]
    shown = [float(r[-2]) for r in rows if len(r) > 2 and r[0] == "sum" and r[-1] == "%"]
    assert shown, result.out


@pytest.mark.parametrize(
    "flags",
    [
        ("--attention", "unfused"),
        ("--overlap", "none"),
        ("--recompute", "full"),
        ("--sp", "megatron"),
        ("--dtype", "fp32"),
        ("--schedule", "gpipe"),
    ],
)
def test_flags_change_the_price(plan: Plan, base_report: Any, flags: tuple[str, str]) -> None:
    changed = plan("simulate", *GPT2, *STRATEGY, *flags, "--json", "-").document
    before, after = base_report["prediction"], changed["prediction"]
    assert before["step_time_s"] != after["step_time_s"] or before["memory"] != after["memory"]


def test_gpt3_on_64_a100_is_near_the_published_step(plan: Plan) -> None:
    """13.75 s: Korthikanti et al., 2022, table 5, 175 B with selective recomputation."""
    report = plan(
        "simulate", "--model", "gpt3-175b", "--cluster", "64xA100-80GB", "--tp", "8", "--pp", "8",
        "--vpp", "3", "--micro-batch", "1", "--global-batch", "64", "--seq-len", "2048",
        "--sp", "megatron", "--recompute", "selective", "--attention", "unfused",
        "--dtype", "fp16", "--stack", "megatron", "--json", "-",
    ).document  # fmt: skip
    assert abs(report["prediction"]["step_time_s"] / 13.75 - 1) <= 0.15
