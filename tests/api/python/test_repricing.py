"""A report is priced again as it was: stack, calibration and risk are the report's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks.repricing import differences, requests

import shardwright as sw
from shardwright.api.problem.report_pricing import (
    carried,
    document_from_text,
    report_pricing,
    run_pricing,
)
from shardwright.api.problem.stored_calibrations import save_calibration
from shardwright.api.server.compute.lending import lent_from
from shardwright.api.server.jobs.routes.jobs import with_calibration
from shardwright.api.server.jobs.workers.execute import prepare
from shardwright.api.server.jobs.workers.run_child import LENT_FILE
from shardwright.costmodel.pricing.version import PRICING_VERSION
from shardwright.spec.cluster.calibration import Factors, unfitted

Plan = Callable[..., Any]
ASKED = ("--model", "llama-2-7b", "--cluster", "2x8xA100-80GB", "--global-batch", "64",
         "--seq-len", "4096")  # fmt: skip


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def calibrated(name: str = "mine", matmul: float = 1.5) -> None:
    made = unfitted(Factors(matmul=matmul), name, "A100-SXM-80GB", "megatron")
    save_calibration(replace(made, pricing_version=PRICING_VERSION, fitted_on=("a",)))


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="sample"), pytest.param(200, marks=pytest.mark.evidence)]
)
def test_requests_are_priced_again_alike(count: int, tmp_path: Path) -> None:
    for request in requests(count, seed=count):
        assert differences(request, tmp_path) == [], request


def test_a_written_plan_keeps_its_stack_in_every_verb(plan: Plan) -> None:
    calibrated()
    flags = ("--stack", "megatron", "--calibration", "mine", "--overlap", "dp", "--oom-risk", "0.2")
    first = plan("simulate", *ASKED, "--tp", "2", *flags, "--json", "-").document
    Path("p.json").write_text(json.dumps(first))
    for verb in ("simulate", "explain"):
        again = plan(verb, "p.json", "--json", "-").document
        assert again["prediction"] == first["prediction"]
        assert again["provenance"] == first["provenance"]
        assert again["assumptions"][-1] == first["assumptions"][-1]
    same = plan("what-if", "p.json", "--set", "global_batch=64", "--deadline", "0.2", "--json", "-")
    assert same.document["same_plan"]["prediction"] == first["prediction"]
    assert same.document["baseline"]["prediction"] == first["prediction"]
    sides = plan("compare", "p.json", "p.json", "--json", "-").document
    assert sides["first"]["prediction"]["step_time_s"] == first["prediction"]["step_time_s"]
    other = plan("explain", "p.json", "--stack", "megatron", "--calibration", "none", "--json", "-")
    faster = other.document["prediction"]["step_time_s"]
    assert faster < first["prediction"]["step_time_s"]


def test_out_writes_the_report_of_a_plan_that_was_not_priced_as_usual(plan: Plan) -> None:
    small = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024",
             "--deadline", "1", "--json", "-")  # fmt: skip
    found = plan(*small, "--stack", "megatron", "--out", "p.json").document
    again = plan("simulate", "p.json", "--json", "-").document
    assert again["prediction"] == found["prediction"]
    assert again["provenance"]["stack"].startswith("megatron ")
    assert set(json.loads(Path("p.json").read_text())) >= {"plan", "plan_hash", "provenance"}
    assert plan(*small, "--out", "usual.json").code == 0
    assert "programs" in json.loads(Path("usual.json").read_text())


def test_another_calibration_of_the_name_is_refused_in_one_line(plan: Plan) -> None:
    calibrated()
    flags = ("--stack", "megatron", "--calibration", "mine", "--json", "p.json")
    assert plan("simulate", *ASKED, *flags).code == 0
    calibrated(matmul=2.0)
    refused = plan("explain", "p.json")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "the one stored now" in refused.err
    assert refused.err.endswith("nearest: --calibration mine\n")
    assert plan("explain", "p.json", "--calibration", "mine").code == 0


def test_a_profile_of_elsewhere_is_refused_and_a_run_goes_on_without(plan: Plan) -> None:
    document = sw.simulate("gpt2", "local:2", global_batch=4, seq_len=64, dp=2).to_dict()
    document["provenance"]["calibration"] = "profile sha256:" + 16 * "0123"
    Path("p.json").write_text(json.dumps(document))
    refused = plan("explain", "p.json")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "nearest: --calibration none" in refused.err
    notes = run_pricing(document_from_text(json.dumps(document), "p.json"))[2]
    assert notes[-1].path == "calibration"


def test_a_run_over_http_gets_the_report_and_its_calibration(tmp_path: Path) -> None:
    checked = b'{"calibration": null}\n{"steps": 3}'
    assert with_calibration(checked, "text") == b'{"calibration": "text"}\n{"steps": 3}'
    answer = sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=64, stack="megatron").to_dict()
    assert report_pricing(carried(answer)).stack == "megatron"
    prepare(tmp_path, carried(answer), None)
    assert report_pricing(json.loads((tmp_path / "plan.json").read_text())).stack == "megatron"
    assert not lent_from(json.loads((tmp_path / LENT_FILE).read_text())).by_name
