"""Calibrations and kept answers made under another version of the pricing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.cli import calibrate
from shardwright.api.problem.stored_calibrations import lending, load_calibration, save_calibration
from shardwright.api.server.compute.lending import lent_document, lent_from
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.server.jobs import row_cache
from shardwright.api.server.jobs.profiles import _merged_calibration
from shardwright.costmodel.calibration.fit import MeasuredStep, fit_calibration
from shardwright.costmodel.pricing.version import PRICING_VERSION
from shardwright.spec.cluster.calibration import Calibration, Factors, unfitted
from shardwright.spec.codec import canonical_json
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
FLAGS = ("--model", "gpt2", "--cluster", "8xH100", "--global-batch", "32", "--seq-len", "1024",
         "--stack", "megatron", "--json", "-")  # fmt: skip


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def made_under(version: int) -> Calibration:
    base = unfitted(Factors(matmul=2.0), "mine", "H100-SXM-80GB", "megatron")
    return replace(base, pricing_version=version)


def test_a_calibration_records_the_version_and_an_old_file_is_of_the_first() -> None:
    rows = [MeasuredStep("a", 2.0, lambda factors: 1.0)]
    assert fit_calibration("one", "H100", "megatron", rows).pricing_version == PRICING_VERSION
    assert made_under(1).pricing_version == 1
    assert "pricing_version" not in canonical_json(made_under(1))


def test_an_older_calibration_is_refused_in_one_line(plan: Plan) -> None:
    save_calibration(made_under(PRICING_VERSION - 1))
    found = plan("simulate", *FLAGS, "--calibration", "mine")
    assert found.code == 2
    assert found.err.count("\n") == 1
    assert "fit it to its runs again; nearest: plan calibrate --name mine" in found.err
    save_calibration(made_under(PRICING_VERSION))
    again = plan("simulate", *FLAGS, "--calibration", "mine")
    assert again.document["provenance"]["versions"]["pricing"] == str(PRICING_VERSION)


def test_an_older_calibration_of_a_token_is_refused_too() -> None:
    older = lent_document(canonical_json(made_under(1)), ["mine"])
    with lending(lent_from(older)), pytest.raises(InputError, match="fit it to its runs again"):
        load_calibration("mine")


def test_nothing_of_an_older_calibration_is_kept_beside_a_new_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_calibration(made_under(1))
    assert calibrate._stored_calibration("mine", made_under(1).scope) is None
    assert "older version of the pricing" in capsys.readouterr().err
    fitted = made_under(PRICING_VERSION)
    assert _merged_calibration(canonical_json(made_under(1)), fitted, of_memory=True) == fitted


def test_kept_rows_are_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = row_cache.row_key({"set": {}}, "measured")
    monkeypatch.setattr(row_cache, "PRICING_VERSION", PRICING_VERSION + 1)
    assert row_cache.row_key({"set": {}}, "measured") != before


def test_an_older_answer_is_not_set_beside_new_prices(plan: Plan) -> None:
    report = plan("simulate", *FLAGS).document
    stored = {"report": report, "asked": {"stack": "megatron"}, "lent": lent_document(None)}
    assert run_operation("trace", json.dumps(stored).encode(), 60.0)[0] == 200
    del report["provenance"]["versions"]["pricing"]
    for operation, body in (
        ("trace", stored),
        ("export-html", stored),
        ("compare", {"first": stored, "second": stored}),
    ):
        status, answer = run_operation(operation, json.dumps(body).encode(), 60.0)
        assert status == 422
        assert "ask again" in json.loads(answer)["detail"]
