"""``--stack NAME:setting=value,…``, the same on the command line, over REST and in Python."""

from __future__ import annotations

import json
from typing import Any

import pytest

import shardwright as sw
from shardwright.api.cli.main import run
from shardwright.api.server.compute.handlers import handle_simulation
from shardwright.api.server.compute.requests import SimulationBody, WorkloadBody
from shardwright.api.what_if.inputs import question_of
from shardwright.spec.errors import InputError

JOB: tuple[str, str] = ("gpt2", "8xH100")
SIZES: dict[str, Any] = {"global_batch": 8, "seq_len": 1024}
FLAGS = ["--model", "gpt2", "--cluster", "8xH100", "--global-batch", "8", "--seq-len", "1024"]


def priced(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert run(["simulate", *FLAGS, "--calibration", "none", *flags, "--json", "-"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_setting_is_priced_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    plain, fused, graphs = (
        priced(capsys, "--stack", f"megatron{settings}")
        for settings in ("", ":loss=fused", ":loss=fused,cuda_graphs=on")
    )
    seconds = [d["prediction"]["step_time_s"] for d in (plain, fused, graphs)]
    assert seconds == sorted(seconds, reverse=True)
    name = graphs["provenance"]["stack"].split()[0]
    assert name == "megatron:cuda_graphs=on,loss=fused"
    assert priced(capsys, "--stack", name)["prediction"] == graphs["prediction"]


def test_rest_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    text = "megatron:dispatcher=deepep,attention_kernels=2"
    body = SimulationBody(
        model="gpt2",
        cluster="8xH100",
        workload=WorkloadBody(global_batch=8, seq_len=1024),
        stack=text,
        calibration="none",
    )
    typed = priced(capsys, "--stack", text)
    answer = handle_simulation(body)
    assert answer["provenance"]["stack"] == typed["provenance"]["stack"]
    assert answer["prediction"]["step_time_s"] == typed["prediction"]["step_time_s"]


def test_python_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    text = "torchtitan:compile=off,attention_kernels=3"
    typed = priced(capsys, "--stack", text)
    handle = sw.simulate(*JOB, **SIZES, stack=text, calibration="none")
    assert handle.prediction.step_time_s == typed["prediction"]["step_time_s"]
    assert handle.stack.name == text
    with pytest.raises(InputError, match="nearest: loss=fused"):
        sw.simulate(*JOB, **SIZES, stack="megatron:loss=fusd")


def test_an_overlap_mode_and_a_setting_agree() -> None:
    assert run(["simulate", *FLAGS, "--stack", "megatron:grad_overlap=on", "--overlap", "dp"]) == 0
    with pytest.raises(InputError, match=r"got all.*expert_overlap=off.*nearest: dp\+tp"):
        sw.simulate(*JOB, **SIZES, stack="megatron:expert_overlap=off", overlap="all")


def test_further_settings_of_a_what_if_belong_to_the_stack_before() -> None:
    stack = "megatron:loss=fused,cuda_graphs=on"
    assert question_of([f"stack={stack}"]).sets == (("stack", stack),)
    text = "stack=megatron,megatron:loss=fused,cuda_graphs=on,torchtitan"
    swept = question_of(sweep=text).sweep
    assert swept is not None
    assert swept.values == ("megatron", "megatron:loss=fused,cuda_graphs=on", "torchtitan")


@pytest.mark.parametrize("verb", ["plan", "simulate", "explain", "what-if", "doctor"])
def test_help_lists_stacks_and_settings(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(([] if verb == "plan" else [verb]) + ["--help"]) == 0
    text = "".join(capsys.readouterr().out.split())
    values = "dispatcher=alltoall|deepep|hybridep"
    assert all(word in text for word in ("megatron-deepspeed", "torchtitan-eager", values))
