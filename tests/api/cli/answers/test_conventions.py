"""MFU in both conventions and tokens a second, wherever a prediction is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.html.report import report_html
from shardwright.api.views.report_text import mfu_text, tokens_text
from shardwright.api.views.report_view import figures
from shardwright.spec.codec import from_document
from shardwright.spec.report.report import Prediction

Plan = Callable[..., Any]
QUESTION = ("simulate", "--model", "llama-3-8b", "--cluster", "8xH100", "--global-batch", "8")
LONG, SHORT = (*QUESTION, "--seq-len", "131072", "--cp", "8"), (*QUESTION, "--seq-len", "1024")
HALVED = "% with causal attention halved"


def flat(text: str) -> str:
    return " ".join(text.split())


def test_both_conventions_stand_where_they_are_apart(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = plan(*LONG, "--json", "long.json")
    assert found.code == 0
    prediction = plan(*LONG, "--json", "-").document["prediction"]
    halved = f"{prediction['mfu_causal'] * 100:.1f} {HALVED}"
    assert prediction["mfu"] - prediction["mfu_causal"] > 0.2
    assert f"{prediction['mfu'] * 100:.1f} % MFU (full attention; {halved})" in flat(found.out)
    assert f"{prediction['tokens_per_s']:.0f} in all" in flat(found.out)
    for command in ("explain", "compare"):
        files = ["long.json"] * (2 if command == "compare" else 1)
        assert halved in flat(plan(command, *files).out), command


def test_one_convention_stands_where_both_agree(plan: Plan) -> None:
    found = flat(plan(*SHORT).out)
    assert "% MFU (full attention) " in found
    assert HALVED not in found


def test_page_and_notebook_say_the_convention() -> None:
    report = sw.simulate("llama-3-8b", "8xH100", global_batch=8, seq_len=131072, cp=8).report
    notes = {figure["name"]: figure["note"] for figure in figures(report)}
    assert HALVED in notes["MFU"]
    assert mfu_text(report.prediction) in report_html(report)
    assert tokens_text(report.prediction) in report_html(report)


def test_documents_of_versions_without_the_figures_are_read() -> None:
    report = sw.simulate("gpt2", "8xH100", global_batch=8, seq_len=1024).report
    document = report.prediction.to_document()
    del document["mfu_causal"], document["tokens_per_s"]
    old = from_document(Prediction, document, "prediction")
    assert old == replace(report.prediction, mfu_causal=None, tokens_per_s=None)
    assert mfu_text(old).endswith(" % MFU (full attention)")
    assert tokens_text(old).endswith(" tokens/s a device")
