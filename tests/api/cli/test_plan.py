"""``plan``: its terminal output, its documents, its files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardwright.spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS

Plan = Callable[..., Any]
SEARCH = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024")
PREDICTION_KEYS = {
    "feasible", "step_time_s", "step_time_interval_s", "interval_level", "samples_per_s",
    "tokens_per_s_per_device", "flops_per_s_per_device", "mfu", "hfu", "flops_convention",
    "memory", "breakdown_s", "mfu_causal", "tokens_per_s",
}  # fmt: skip
MEMORY_KEYS = {
    "program", "stage", "device_group", "tier", "allocated_bytes", "reserved_bytes",
    "capacity_bytes", "by",
}  # fmt: skip
SIMULATION_KEYS = {
    "plan", "plan_hash", "prediction", "assumptions", "source_share", "provenance",
}  # fmt: skip
SEARCH_KEYS = {
    "seconds", "candidates", "lower_bound_s", "gap", "stopped_by", "space", "left_out",
    "objective", "tie_set",
}  # fmt: skip


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The document of one search."""
    from shardwright.api.cli.main import run

    target = tmp_path_factory.mktemp("search") / "report.json"
    assert run((*SEARCH, "--json", str(target))) == 0
    return json.loads(target.read_text())


def check_prediction(prediction: Any) -> None:
    """The keys of the contract, and terms that add up."""
    assert set(prediction) == PREDICTION_KEYS
    step_s = prediction["step_time_s"]
    assert set(BREAKDOWN_TERMS) <= set(prediction["breakdown_s"])
    assert math.isclose(sum(prediction["breakdown_s"].values()), step_s, rel_tol=1e-9)
    assert abs(prediction["breakdown_s"]["unattributed"]) <= 0.01 * step_s
    low, high = prediction["step_time_interval_s"]
    assert low < step_s < high
    assert prediction["interval_level"] == 0.8
    assert 0 < prediction["mfu_causal"] < prediction["mfu"] <= prediction["hfu"] < 1
    for row in prediction["memory"]:
        assert set(row) == MEMORY_KEYS
        assert set(MEMORY_TERMS) <= set(row["by"])
        assert sum(row["by"].values()) == row["reserved_bytes"] >= row["allocated_bytes"]


def test_search_document_has_the_keys_of_the_contract(searched: Any) -> None:
    beside = {"search", "alternatives", "sensitivities", "common_stack"}
    assert set(searched) == SIMULATION_KEYS | beside
    assert set(searched["search"]) == SEARCH_KEYS
    assert searched["search"]["stopped_by"] in ("proof", "work", "deadline")
    assert {"tp", "pp", "vpp", "shard", "recompute", "micro_batch"} <= set(
        searched["search"]["space"]
    )
    for item in searched["search"]["left_out"]:
        assert set(item) == {"what", "why"}
    for item in searched["assumptions"]:
        assert set(item) == {"path", "value", "why"}
    assert set(searched["source_share"]) == {"measured", "learned", "analytic"}
    assert math.isclose(sum(searched["source_share"].values()), 1)
    assert set(searched["provenance"]) == {"stack", "calibration", "tables", "versions"}
    check_prediction(searched["prediction"])


def test_alternatives_are_slower_and_say_why(searched: Any) -> None:
    assert searched["alternatives"]
    best_s = searched["prediction"]["step_time_s"]
    for item in searched["alternatives"]:
        assert {"plan", "prediction", "lost_by"} <= set(item) <= {
            "plan", "prediction", "lost_by", "simplest",
        }  # fmt: skip
        assert item["prediction"]["step_time_s"] >= best_s
        check_prediction(item["prediction"])


def test_the_bound_is_below_the_plan_by_the_gap(searched: Any) -> None:
    search, step_s = searched["search"], searched["prediction"]["step_time_s"]
    assert search["lower_bound_s"] <= step_s
    assert math.isclose(search["gap"], step_s / search["lower_bound_s"] - 1, abs_tol=1e-12)


def test_a_fabric_that_was_not_given_is_assumed_first(plan: Plan) -> None:
    result = plan(
        "simulate", "--model", "gpt2", "--cluster", "16xH100", "--global-batch", "64",
        "--seq-len", "1024", "--json", "-",
    )  # fmt: skip
    assert result.code == 0
    first = result.document["assumptions"][0]
    assert (first["path"], first["value"]) == ("cluster.levels.1.fabric", "8x400G-IB")


def test_bare_plan_is_for_this_machine(plan: Plan) -> None:
    result = plan("--calibration", "none")
    assert result.code == 0
    assert result.err == ""
    assert result.out.startswith("shardwright-demo")
    assert "local:" in result.out
    assert "the embedded default" in result.out


def test_terminal_output_tells_what_one_decides_by(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = "plan.json"
    result = plan(*SEARCH, "--out", target)
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in result.out
    for words in (
        "gpt2 (124 M parameters), 64 x 1024 tokens a step, bf16, adamw",
        "H100-SXM-80GB",
        "plans simulated in",
        "MFU",
        "GiB on stage",
        "stage  layers",
        "where the step goes: ",
        "analytic",
        "lost to this plan:",
        "simplest",
        "assumed:",
        f"next: plan explain {target}",
    ):
        assert words in result.out, words


def test_written_plan_is_the_reported_one(plan: Plan, searched: Any, tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    assert plan(*SEARCH, "--out", str(target)).code == 0
    assert json.loads(target.read_text()) == searched["plan"]
    again = plan("simulate", str(target), "--json", "-").document
    assert again["plan_hash"] == searched["plan_hash"]
    assert again["prediction"] == searched["prediction"]


def test_a_report_is_as_good_as_a_plan(plan: Plan, searched: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text(json.dumps(searched))
    result = plan("simulate", str(target), "--json", "-")
    assert result.document["plan_hash"] == searched["plan_hash"]


def test_json_alone_goes_to_the_standard_output(plan: Plan) -> None:
    result = plan(*SEARCH, "--json", "-", "--top", "0")
    assert result.code == 0
    assert result.err == ""
    simplest = [item for item in result.document["alternatives"] if not item.get("simplest")]
    assert simplest == []


def test_pins_are_kept(plan: Plan) -> None:
    pins = ("--pin", "tp=2", "--pin", "pp=2", "--pin", "recompute@1-3=full")
    report = plan(*SEARCH, *pins, "--json", "-").document
    stages = report["plan"]["programs"][0]["stages"]
    assert len(stages) == 2
    parts = [part for stage in stages for chunk in stage["virtual_stages"] for part in chunk]
    blocks = [p for p in parts if p["layers"][1] in (1, 2, 3)]
    assert blocks
    assert {part["strategy"]["tp"] for part in parts} == {2}
    assert {part["strategy"]["recompute"] for part in blocks} == {"full"}
    assert any("tp=2" in item["what"] for item in report["search"]["left_out"])


def test_a_deep_model_is_pinned_whole(plan: Plan) -> None:
    """More layers than an array has axes, and one plan left for each shape."""
    pins = ("tp=8", "pp=2", "sp=megatron", "shard=zero1", "recompute=none", "compile=none")
    flags = [part for pin in pins for part in ("--pin", pin)]
    question = ("--model", "llama-3-70b", "--cluster", "8x8xH100", "--global-batch", "64")
    report = plan(*question, "--seq-len", "2048", *flags, "--json", "-").document
    assert len(report["plan"]["programs"][0]["stages"]) == 2
    assert report["search"]["gap"] >= 0


def test_a_smaller_risk_asks_for_more_room(plan: Plan) -> None:
    model = ("--model", "llama-3-8b", "--cluster", "8xH100", "--global-batch", "8")
    sizes = []
    for risk in ("0.5", "0.001"):
        arguments = (*model, "--seq-len", "8192", "--oom-risk", risk, "--top", "0", "--json", "-")
        report = plan(*arguments, "--pin", "tp=2").document
        assert report["prediction"]["feasible"]
        sizes.append(max(row["reserved_bytes"] for row in report["prediction"]["memory"]))
    capacity = report["prediction"]["memory"][0]["capacity_bytes"]
    assert sizes[0] <= capacity
    assert sizes[1] <= capacity / 1.06


def test_a_deadline_answers_with_a_sound_gap(plan: Plan) -> None:
    report = plan(*SEARCH, "--deadline", "0.01", "--json", "-").document
    assert report["search"]["stopped_by"] in ("deadline", "proof", "work")
    assert report["search"]["gap"] >= 0
    assert report["prediction"]["feasible"]


def test_global_batch_in_tokens(plan: Plan) -> None:
    arguments = ("simulate", "--model", "gpt2", "--cluster", "8xH100", "--seq-len", "1024")
    report = plan(*arguments, "--global-batch-tokens", "65536", "--json", "-").document
    assert report["plan"]["workloads"]["main"]["global_batch"] == 64


def test_a_plan_over_by_the_margin_alone_is_not_tried_again(plan: Plan) -> None:
    """Tight memory: what is found is no slower than one strategy for all layers that fits."""
    asked = ("--model", "llama-3-8b", "--cluster", "1x8xA100-40GB", "--global-batch", "32")
    asked += ("--seq-len", "8192", "--json", "-")
    pins = [part for pin in ("pp=2", "schedule=1f1b", "sp=none", "dp=2") for part in ("--pin", pin)]
    found = plan(*asked, *pins).document["prediction"]
    uniform = plan("simulate", *asked, "--pp", "2", "--cp", "2", "--shard", "zero3").document
    assert uniform["prediction"]["feasible"]
    assert found["feasible"]
    assert found["step_time_s"] <= uniform["prediction"]["step_time_s"]
