"""Measuring the best plans: what is fitted, stored, told and priced by afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from generators.plan_cases import Case, sharded

from shardwright.api.execution import measure_top
from shardwright.api.execution.measure_top import calibration_name, check_count, measure_plans
from shardwright.api.planning.report import simulate_plan
from shardwright.api.problem.stored_calibrations import (
    calibration_for,
    load_calibration,
    measured_name,
)
from shardwright.datasets.catalogue.stack import stack
from shardwright.profiler.store import profiles
from shardwright.spec.cluster.machine_profile import KernelRow, MachineProfile
from shardwright.spec.cluster.measured import CorrectedProfile, profile_of
from shardwright.spec.errors import InputError
from shardwright.spec.plan.plan import Plan

STACK = stack("shardwright", on_cores=True)
CASES = (
    Case(name="dp", seq_len=64),
    Case(name="zero3", strategies=sharded("zero3", 4), seq_len=64),
    Case(name="pp", stages=2, seq_len=64),
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def profile() -> MachineProfile:
    return MachineProfile(
        fingerprint=profiles.fingerprint(),
        machine={"processor": "a test"},
        ranks=4,
        measured_at="2026-01-01T00:00:00Z",
        duration_s=1.0,
        kernels=(
            KernelRow(op="mm", shape=(64, 64, 64), dtype="fp32", traffic_bytes=49152, time_s=1e-5),
            KernelRow(
                op="mm", shape=(256, 256, 256), dtype="fp32", traffic_bytes=786432, time_s=4e-4
            ),
        ),
        host_s={"kernel": 2e-6, "layer_pass": 3e-5, "step": 1e-4},
    )


def predicted_s(plan: Plan, measured: Any) -> float:
    return simulate_plan(plan, STACK, measured, ()).report.prediction.step_time_s


@pytest.mark.parametrize("base", [None, profile()], ids=["catalogue", "profile"])
def test_steps_of_twice_the_prediction_double_the_prices(base: MachineProfile | None) -> None:
    plans = [case.plan() for case in CASES]
    order = [1.9, 2.1, 2.0]
    if base is not None:
        profiles.save_profile(base)

    def run(plan: Plan) -> dict[str, Any]:
        times = order[plans.index(plan)]
        return {"measured": {"step_time_s": times * predicted_s(plan, base)}}

    found, fitted = measure_plans(plans, STACK, base, run)
    assert [one.measured_s for one in found] == sorted(one.measured_s for one in found)
    for one in found:
        assert one.predicted_s == pytest.approx(predicted_s(one.plan, base), rel=1e-9)
        assert abs(one.corrected_s / one.measured_s - 1) < 0.35
        assert abs(one.corrected_s - one.measured_s) < abs(one.predicted_s - one.measured_s)
    assert fitted.profile == ("" if base is None else base.fingerprint)
    assert load_calibration(fitted.name) == fitted
    first = plans[0]
    again = calibration_for(fitted.name, first.cluster, STACK, first.workload.dtype)
    assert profile_of(again) == base
    by_hash = {one.plan.hash: one for one in found}
    for plan in plans:
        corrected = by_hash[plan.hash].corrected_s
        assert predicted_s(plan, again) == pytest.approx(corrected, rel=1e-9)


def test_a_calibration_on_another_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, base = CASES[0].plan(), profile()
    profiles.save_profile(base)
    _, fitted = measure_plans(
        [plan], STACK, base, lambda p: {"measured": {"step_time_s": predicted_s(p, base)}}
    )
    known = calibration_for(fitted.name, plan.cluster, STACK, plan.workload.dtype)
    assert isinstance(known, CorrectedProfile)
    assert fitted.name in measured_name(known)
    assert base.fingerprint in measured_name(known)
    monkeypatch.setattr(
        "shardwright.api.problem.stored_calibrations.newest_profile", lambda *_: None
    )
    with pytest.raises(InputError, match="none of this machine"):
        calibration_for(fitted.name, plan.cluster, STACK, plan.workload.dtype)


def test_names_are_those_that_a_calibration_may_have() -> None:
    assert calibration_name(CASES[0].plan()) == "measured-small-cpu-4"


@pytest.mark.parametrize("count", [0, 11])
def test_so_many_plans_cannot_be_measured(count: int) -> None:
    with pytest.raises(InputError, match=measure_top.FLAG):
        check_count(count)


def test_measuring_without_running_is_refused(plan: Any) -> None:
    refused = plan("--model", "gpt2", "--cluster", "local", "--measure-top", "2")
    assert refused.code == 2
    assert "--measure-top" in refused.err
    assert "--execute" in refused.err
