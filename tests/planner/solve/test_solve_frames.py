"""The way from the command to the engine: three frames, and one frozen solution."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import shardwright
from shardwright.api.cli.main import run
from shardwright.api.planning.report import solution_report
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.planner.search.branch_and_bound import BranchAndBound, SolveResult
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.solve import solve

ROOT = Path(shardwright.__file__).parent
FLAGS = "--model gpt2 --cluster 2xA100-80GB --global-batch 8 --seq-len 128 --json -"


def test_the_command_reaches_the_engine_in_three_frames(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[str] = []
    original = BranchAndBound.run

    def recorded(engine: BranchAndBound) -> SolveResult:
        frame = sys._getframe(1)
        while frame is not None and names[-1:] != ["plan_command"]:
            assert Path(frame.f_code.co_filename).is_relative_to(ROOT)
            names.append(frame.f_code.co_name)
            assert frame.f_back is not None
            frame = frame.f_back
        return original(engine)

    monkeypatch.setattr(BranchAndBound, "run", recorded)
    assert run(FLAGS.split()) == 0
    assert names == ["solve", "solved_report", "plan_command"]
    assert '"plan_hash"' in capsys.readouterr().out


def test_a_solution_is_frozen_and_becomes_a_report() -> None:
    problem = resolve(
        Inputs(model="gpt2", cluster="4xA100-80GB", global_batch=6, seq_len=128, calibration="none")
    )
    solution = solve(problem, SolveOptions(top=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.plan = solution.plan  # type: ignore[misc]
    report = solution_report(problem, solution)
    assert report.plan is solution.plan
    assert report.search is solution.search
    assert report.assumptions == problem.assumptions + solution.notes
    used = sum(stage.device_count for stage in solution.plan.program.stages)
    assert [note.value for note in solution.notes] == [4 - used] * (used < 4)
