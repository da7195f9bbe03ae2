"""A sweep that was cut short goes on where it was, and only where that is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler import sweep
from shardwright.profiler.cases.all_cases import Sizes
from shardwright.profiler.store.partial_profile import partial_path
from shardwright.profiler.store.profile_rows import case_key
from shardwright.profiler.store.profiles import profile_folder
from shardwright.profiler.sweep import SweepTarget
from shardwright.profiler.timing import kernel_timing
from shardwright.spec.cluster.machine_profile import KernelRow, MachineProfile
from shardwright.spec.errors import RunError

KERNEL = {"op": "add", "shape": [8], "dtype": "fp32", "flops": 0, "traffic_bytes": 96}
LINK = {"kind": "send", "ranks": 2, "payload_bytes": 64, "time_s": 4e-6}
FEW_S, MANY_S = 20.0, 60.0
TINY = Sizes(sides=(8,), elements=(1024,), heads=(2,), sequences=(16,), head_dims=(8,))


class Machine:
    """A pool whose jobs answer at once; one of them breaks, if told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.breaks: str | None = None
        self.jobs: list[str] = []
        self.known: list[Any] = []
        self.reports: list[dict[str, Any]] = []
        monkeypatch.setattr(sweep, "WorkerPool", self)
        monkeypatch.setattr(sweep, "with_overheads", lambda profile, *_: profile)
        monkeypatch.setattr(sweep, "ROUNDS", 1)

    def __call__(self, ranks: int, device: str) -> Machine:
        self.jobs.clear()
        return self

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, job: str, payload: Any, limit_s: object, relay: Any) -> list[Any]:
        name = job.partition(":")[2]
        if name == "measure_kernels":
            self.known = json.loads(json.dumps(payload["known"]))
            for report in self.reports:
                for rank in (0, 1):
                    relay(rank, report)
        if name == self.breaks:
            raise RunError("rank 1 was killed by SIGKILL")
        self.jobs.append(name)
        found = {"rows": [{**KERNEL, "time_s": 2e-6}], "skipped": []}
        nothing = {"rows": [], "skipped": []}
        return [{"measure_kernels": found, "measure_links": [LINK]}.get(name, nothing)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return Machine(monkeypatch)


def broken_at(machine: Machine, job: str, budget_s: float = FEW_S) -> None:
    machine.breaks = job
    with pytest.raises(RunError):
        sweep.measure(budget_s, 2)
    machine.breaks = None


def complete(profile: MachineProfile) -> bool:
    return len(profile.kernels) == 1 and len(profile.collectives) == 1


def test_what_was_finished_is_kept(machine: Machine) -> None:
    broken_at(machine, "measure_links")
    events: list[dict[str, Any]] = []
    profile = sweep.measure(FEW_S, 2, events.append)
    assert machine.jobs == ["warm_up", "measure_links", "measure_copies", "measure_sharing"]
    assert complete(profile)
    assert events[0] == {"phase": "start", "ranks": 2, "resumed": ["kernels"]}
    assert not partial_path(profile).exists()
    sweep.measure(FEW_S, 2)
    assert "measure_kernels" in machine.jobs, "the next one is a new one"


def test_it_is_kept_again_and_again(machine: Machine) -> None:
    broken_at(machine, "measure_links")
    broken_at(machine, "measure_sharing")
    assert complete(sweep.measure(FEW_S, 2))
    assert machine.jobs == ["warm_up", "measure_sharing"]


def report(op: str) -> dict[str, Any]:
    """What ranks report of kernels that they timed and one that they had no room for."""
    row, skipped = {**KERNEL, "op": op, "time_s": 1e-6}, {"op": op, "why": "out of device memory"}
    return {"phase": "kernels", "done": 1, "found": {"rows": [row], "skipped": [skipped]}}


def test_kernels_are_kept_before_their_stage_is_over(machine: Machine) -> None:
    machine.reports = [report("mul"), report("exp")]
    broken_at(machine, "measure_kernels")
    machine.reports = []
    events: list[dict[str, Any]] = []
    profile = sweep.measure(FEW_S, 2, events.append)
    assert machine.known == [["mul", [8], "fp32", 96], ["exp", [8], "fp32", 96]]
    assert [row.op for row in profile.kernels] == ["mul", "exp", "add"]
    assert [item.op for item in profile.skipped][:2] == ["mul", "exp"]
    assert events[0]["resumed"] == ["kernels in part"]
    sweep.measure(FEW_S, 2)
    assert machine.known == [], "the next one is a new one"


def test_rows_are_not_passed_on_to_who_watches(machine: Machine) -> None:
    machine.reports = [report("mul")]
    events: list[dict[str, Any]] = []
    sweep.measure(FEW_S, 2, events.append)
    kernels = [event for event in events if event["phase"] == "kernels"]
    assert kernels == [{"phase": "kernels", "done": 1}]


def test_a_part_of_a_later_round_does_not_replace_a_whole_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "ROUNDS", 2)
    machine.reports = [report("mul")]
    counted = iter(range(9))
    timed = machine.run

    def run(job: str, *given: Any) -> list[Any]:
        found = timed(job, *given)
        if job.endswith("measure_kernels") and next(counted) == 1:
            raise RunError("rank 1 was killed by SIGKILL")
        return found

    monkeypatch.setattr(machine, "run", run)
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 2)
    events: list[dict[str, Any]] = []
    sweep.measure(FEW_S, 2, events.append)
    stages = ["kernels", "links", "copies", "sharing", "storage"]
    assert events[0]["resumed"] == stages


def reported(
    monkeypatch: pytest.MonkeyPatch, keep_s: float, known: list[Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a core's sweep of kernels gave in the end, and what it told on the way."""
    monkeypatch.setattr(kernel_timing, "KEEP_S", keep_s)
    monkeypatch.setattr(kernel_timing, "ENOUGH_S", 0.0)
    monkeypatch.setattr(kernel_timing, "sizes_for", lambda device, coarse: TINY)
    events: list[dict[str, Any]] = []
    context = RankContext(0, 1, torch.device("cpu"), 60.0, events.append)
    payload = {"coarse": True, "dtypes": ["fp32"], "budget_s": 60.0, "known": known}
    found = kernel_timing.measure_kernels(context, payload)
    return found, [event["found"] for event in events if "found" in event]


def test_what_is_found_is_told_on_the_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, told = reported(monkeypatch, 0.0, [])
    assert [row for part in told for row in part["rows"]] == found["rows"]
    assert len(told) == len(found["rows"]) > 20
    assert reported(monkeypatch, 60.0, [])[1] == []


def test_what_is_known_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    every = reported(monkeypatch, 60.0, [])[0]["rows"]
    known = json.loads(json.dumps([case_key(KernelRow(**shaped(row))) for row in every[:-3]]))
    left = reported(monkeypatch, 60.0, known)[0]["rows"]
    assert [(row["op"], row["shape"]) for row in left] == [
        (row["op"], row["shape"]) for row in every[-3:]
    ]


def shaped(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "shape": tuple(row["shape"])}


def test_another_kind_of_sweep_starts_over(machine: Machine, tmp_path: Path) -> None:
    broken_at(machine, "measure_links")
    for budget_s, target in ((MANY_S, None), (FEW_S, SweepTarget(fresh=True))):
        machine.breaks = "measure_kernels"
        with pytest.raises(RunError):
            sweep.measure(budget_s, 2, None, target)
    machine.breaks = "measure_kernels"
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 2, None, SweepTarget(storage=tmp_path))
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 3)
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 2, None, SweepTarget(device="H200-SXM-141GB"))
    assert sweep.measure(FEW_S, 2).ranks == 2, "and leaves what it does not use"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"finished": []}'])
def test_what_cannot_be_read_is_not_used(machine: Machine, content: str) -> None:
    broken_at(machine, "measure_links")
    (kept,) = (profile_folder() / "partial").iterdir()
    kept.write_text(content)
    assert complete(sweep.measure(FEW_S, 2))
    assert "measure_kernels" in machine.jobs


def test_a_drive_is_measured_where_a_folder_is_given(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"kind": "nvme_read", "payload_bytes": 4096, "time_s": 1e-3}
    monkeypatch.setattr(sweep, "measure_storage", lambda folder: [row])
    assert {item.op for item in sweep.measure(FEW_S, 2).skipped} == {"nvme_read", "nvme_write"}
    profile = sweep.measure(FEW_S, 2, None, SweepTarget(storage=tmp_path))
    assert profile.skipped == ()
    assert [copy.kind for copy in profile.copies] == ["nvme_read"]
