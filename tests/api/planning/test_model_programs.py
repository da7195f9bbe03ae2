"""What ``plan profile --programs`` would time."""

from __future__ import annotations

import json

import pytest

from shardwright.api.cli.main import run
from shardwright.api.planning.model_programs import LARGEST_BYTES, model_kernels, programs_to_time


def test_kernels_of_a_models_step_weigh_what_they_take() -> None:
    # A card of the catalogue: on cores two kernels are so near that the machine decides.
    seconds = model_kernels("shardwright-demo", "8xA100-80GB")
    heaviest = max(seconds, key=lambda kernel: seconds[kernel])
    assert heaviest.op == "matmul"
    assert all(kernel.traffic_bytes <= LARGEST_BYTES for kernel in seconds)
    chosen = programs_to_time(seconds, 8)
    assert len(set(chosen)) == 8
    assert chosen == programs_to_time(seconds, 8)
    assert chosen[0].op == heaviest.op


def test_a_dry_run_lists_and_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--programs", "5", "--model", "shardwright-demo", "--cluster", "local:1"]
    assert run(["profile", *flags, "--dry-run", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["programs"]) == 5


@pytest.mark.parametrize("flag", [["--model", "shardwright-demo"], ["--dry-run"]])
def test_flags_of_programs_alone_are_refused(
    flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", *flag]) == 2
    assert "--programs" in capsys.readouterr().err
