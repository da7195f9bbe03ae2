"""A solver that is missing, stops, or is asked for what cannot be: a plan and its gap, or why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import shardwright as sw
from shardwright.planner.relaxation import restricted_master
from shardwright.spec.errors import InfeasibleError

ASKED: dict[str, Any] = {
    "model": "gpt2-xl", "cluster": "8xA100-80GB", "global_batch": 64, "seq_len": 1024,
    "calibration": "none",
}  # fmt: skip
WITHOUT = """
import sys
sys.modules["highspy"] = None
from shardwright.api.cli.main import run
raise SystemExit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def whole() -> Any:
    """The answer with a solver that solves."""
    return sw.plan(**ASKED).report.to_document()


def _check(found: Any, whole: Any) -> None:
    """A legal plan, and a gap whose bound the best plan does not break."""
    search = found["search"]
    assert found["prediction"]["feasible"]
    assert search["gap"] is not None
    assert search["lower_bound_s"] <= whole["prediction"]["step_time_s"] * (1 + 1e-9)
    assert search["lower_bound_s"] <= whole["search"]["lower_bound_s"] * (1 + 1e-9)
    step_s = found["prediction"]["step_time_s"]
    assert step_s / search["lower_bound_s"] - 1 == pytest.approx(search["gap"], abs=1e-6)


@pytest.mark.parametrize("solves", [0, 1, 5])
def test_a_solver_that_stops_leaves_a_plan_and_its_gap(
    monkeypatch: pytest.MonkeyPatch, whole: Any, solves: int
) -> None:
    asked, real = [0], restricted_master.RestrictedMaster.solution

    def solution(
        self: restricted_master.RestrictedMaster,
    ) -> restricted_master.MasterSolution | None:
        asked[0] += 1
        return real(self) if asked[0] <= solves else None

    monkeypatch.setattr(restricted_master.RestrictedMaster, "solution", solution)
    found = sw.plan(**ASKED).report.to_document()
    assert asked[0] > solves
    _check(found, whole)


def _without(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False,
        timeout=55, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip


def test_without_a_solver_a_plan_says_what_its_gap_lacks(whole: Any) -> None:
    flags = ("--model", "gpt2-xl", "--cluster", "8xA100-80GB", "--global-batch", "64",
             "--seq-len", "1024", "--calibration", "none")  # fmt: skip
    done = _without(*flags, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    _check(found, whole)
    assert any("highspy" in each["why"] for each in found["search"]["left_out"])
    assert not any("highspy" in each["why"] for each in whole["search"]["left_out"])


def test_what_cannot_be_is_said_with_and_without_a_solver() -> None:
    tiny = {**ASKED, "model": "llama-3-70b", "cluster": "1xA100-80GB", "global_batch": 1}
    with pytest.raises(InfeasibleError, match="hbm"):
        sw.plan(**tiny)
    done = _without("--model", "llama-3-70b", "--cluster", "1xA100-80GB", "--global-batch", "1",
                    "--seq-len", "1024", "--calibration", "none")  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "hbm" in done.stderr
