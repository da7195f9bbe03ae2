"""Formats of gradients, master weights and moments: every way in, and their price."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.problem.resolve import Inputs
from shardwright.api.server.compute.operations import run_operation
from shardwright.api.what_if.inputs import question_of
from shardwright.api.what_if.what_if import base_setting
from shardwright.planner.what_if.question import rows_of
from shardwright.spec.errors import InputError

Plan = Callable[..., Any]
GPT_NEOX_3B = {
    "layers": 32, "hidden": 2560, "ffn": 10240, "heads": 32, "vocab": 50304,
    "norm": "layernorm", "activation": "gelu",
}  # fmt: skip
STATES = {"grad_dtype": "bf16", "master_dtype": "none", "moment_dtype": "bf16"}
FLAGS = ("--grad-dtype", "bf16", "--master-dtype", "none", "--moment-dtype", "bf16")
GPT2 = ("--model", "gpt2", "--cluster", "1xA100", "--global-batch", "4", "--seq-len", "1024")


def test_all_bf16_states_take_half_the_memory() -> None:
    """A 3B GPT-NeoX in bf16 alone measured 23.6 GB; states of 8 bytes a parameter are 22.2."""
    work = {"global_batch": 1, "seq_len": 2048, "dtype": "bf16"}
    usual = sw.simulate(GPT_NEOX_3B, "1xA100-80GB", **work)
    whole = sw.simulate(GPT_NEOX_3B, "1xA100-80GB", **work, **STATES)
    (was,), (now,) = (made.report.prediction.memory for made in (usual, whole))
    assert was.allocated_bytes == pytest.approx(45.3e9, rel=0.02)
    assert now.allocated_bytes == pytest.approx(22.2e9, rel=0.03)


def test_flags_reach_the_document_and_the_first_line(plan: Plan) -> None:
    answered = plan("simulate", *GPT2, *FLAGS, "--json", "-").document
    dtype = answered["plan"]["workloads"]["main"]["dtype"]
    assert dtype == dict.fromkeys(("gradient", "master", "moments", "communication"), "bf16")
    head = " ".join(plan("simulate", *GPT2, *FLAGS).out.split())
    assert "bf16 (no master weights, gradients bf16, moments bf16), adamw" in head
    assert "bf16, adamw" in " ".join(plan("simulate", *GPT2).out.split())


def test_usual_formats_said_aloud_are_the_same_plan(plan: Plan) -> None:
    said = ("--grad-dtype", "fp32", "--master-dtype", "fp32", "--moment-dtype", "fp32")
    documents = [plan("simulate", *GPT2, *more, "--json", "-").document for more in ((), said)]
    assert documents[0]["plan_hash"] == documents[1]["plan_hash"]


def test_request_keys_are_the_flags() -> None:
    body = {
        "model": "gpt2", "cluster": "1xA100", "strategy": {},
        "workload": {"global_batch": 4, "seq_len": 1024, **STATES},
    }  # fmt: skip
    status, answer = run_operation("simulation", json.dumps(body).encode(), 20.0)
    assert status == 200, answer
    dtype = json.loads(answer)["plan"]["workloads"]["main"]["dtype"]
    assert dtype["master"] == "bf16"
    body["workload"]["master_dtype"] = "fp8"  # type: ignore[index]
    status, answer = run_operation("simulation", json.dumps(body).encode(), 20.0)
    assert status == 422
    assert "master_dtype" in answer.decode()


def test_what_if_changes_states_and_dtype_keeps_them() -> None:
    plan = sw.simulate("gpt2", "1xA100", global_batch=4, seq_len=1024, **STATES).plan
    base = base_setting(plan, Inputs())
    for key, word, master in (("master_dtype", "fp32", "fp32"), ("dtype", "fp16", "fp16")):
        (row,) = rows_of(question_of((f"{key}={word}",)), base)
        assert row.setting.workload.dtype.master == master
        assert row.setting.workload.dtype.moments == "bf16"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--master-dtype", "fp8"), "--master-dtype: got fp8; allowed: none, fp32, bf16, fp16"),
        (("--moment-dtype", "bf16", "--optimizer", "adamw8bit"), "--moment-dtype: got bf16"),
    ],
)
def test_impossible_formats_are_refused_in_one_line(
    plan: Plan, more: tuple[str, ...], words: str
) -> None:
    failed = plan("simulate", *GPT2, *more)
    assert failed.code == 2
    assert words in failed.err


def test_runs_refuse_them_by_name(plan: Plan) -> None:
    asked = ("--cluster", "local:1", "--model", "shardwright-demo", "--global-batch", "4")
    failed = plan(*asked, "--seq-len", "64", "--moment-dtype", "bf16", "--execute")
    assert failed.code == 2
    assert failed.err.startswith("--moment-dtype: got bf16; allowed: what --execute can run")


def test_what_if_refuses_moments_that_an_optimizer_does_not_choose() -> None:
    asked = {"global_batch": 4, "seq_len": 1024, "optimizer": "adamw8bit"}
    base = base_setting(sw.simulate("gpt2", "1xA100", **asked).plan, Inputs())
    with pytest.raises(InputError, match="8-bit blocks"):
        rows_of(question_of(("moment_dtype=bf16",)), base)
