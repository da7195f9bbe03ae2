"""Missing sizes and unknown keys, told at once and whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardwright.api.cli.main import run
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.problem.workload_size import usual_batch
from shardwright.api.server.compute.operations import run_operation
from shardwright.datasets.models.typed_model import KNOWN
from shardwright.spec.errors import MissingInputError


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ({}, {"--global-batch": 64, "--seq-len": 4096}),
        ({"global_batch": 8}, {"--seq-len": 4096}),
        ({"global_batch_tokens": 8192}, {"--seq-len": 4096}),
        ({"seq_len": 2048}, {"--global-batch": 64}),
        ({"model": "gpt2"}, {"--global-batch": 64, "--seq-len": 1024}),
        ({"model": "vit-h"}, {"--global-batch": 64}),
        ({"cluster": "1x4090"}, {"--global-batch": 16, "--seq-len": 4096}),
        ({"cluster": "256xH100"}, {"--global-batch": 512, "--seq-len": 4096}),
        ({"cluster": "1024xH100"}, {"--global-batch": 1024, "--seq-len": 4096}),
        ({"objective": "largest-batch"}, {"--seq-len": 4096}),
        ({"objective": "largest-sequence"}, {"--global-batch": 64}),
    ],
)
def test_what_is_missing_is_named_with_usual_values(
    given: dict[str, Any], usual: dict[str, int]
) -> None:
    asked: dict[str, Any] = {"model": "llama-3-8b", "cluster": "8xH100", **given}
    with pytest.raises(MissingInputError) as caught:
        resolve(Inputs(**asked))
    assert caught.value.usual == usual
    flags = {flag.removeprefix("--").replace("-", "_"): n for flag, n in usual.items()}
    assert resolve(Inputs(**asked, **flags)).workload.seq_len >= 1


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (
            ["--model", "llama-3-8b", "--cluster", "8xH100"],
            "plan --model llama-3-8b --cluster 8xH100 --global-batch 64 --seq-len 4096",
        ),
        (
            ["simulate", "--model", "gpt2", "--cluster", "2x4090", "--recompute", "ops:save=a b"],
            "plan simulate --model gpt2 --cluster 2x4090 --recompute 'ops:save=a b' "
            "--global-batch 16 --seq-len 1024",
        ),
        (
            ["--cluster", "8xH100", "--seq-len", "2048", *(["--pin", "recompute@1-4=full"] * 20)],
            "plan --cluster 8xH100 --seq-len 2048"
            + " --pin recompute@1-4=full" * 20
            + " --global-batch 64",
        ),
    ],
)
def test_the_command_line_tells_a_whole_command(
    typed: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(typed) == 2
    assert capsys.readouterr().err.endswith(f"; nearest: {command}\n")


def test_a_bare_question_lacks_nothing() -> None:
    assert resolve(Inputs()).workload.global_batch == 8


def test_a_usual_batch_divides_over_the_devices() -> None:
    for devices in (1, 2, 3, 8, 64, 96, 512, 4096):
        assert usual_batch(devices) >= devices
    assert usual_batch(8) == 64


def test_the_service_points_at_each() -> None:
    body = {"model": "gpt2", "cluster": "8xA100-80G", "workload": {}}
    status, answer = run_operation("plan", json.dumps(body).encode(), 10.0)
    document = json.loads(answer)
    assert status == 422
    pointers = [item["pointer"] for item in document["errors"]]
    assert pointers == ["/workload/global_batch", "/workload/seq_len"]
    assert "64 and 1024" in document["detail"]


def test_the_service_lists_every_key_of_a_typed_model() -> None:
    body = {"model": {"layers": 2, "d_model": 8}, "cluster": "local", "workload": {}}
    status, answer = run_operation("plan", json.dumps(body).encode(), 10.0)
    detail = json.loads(answer)["detail"]
    assert status == 422
    assert all(f" {key}" in detail for key in KNOWN)
    assert detail.endswith("; nearest: hidden")
