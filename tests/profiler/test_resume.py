"""A sweep that was cut short goes on where it was, and only where that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardwright.profiler import sweep
from shardwright.profiler.partial import partial_path
from shardwright.profiler.store import profile_folder
from shardwright.profiler.sweep import Target
from shardwright.spec.errors import RunError
from shardwright.spec.profile import MachineProfile

KERNEL = {"op": "add", "shape": [8], "dtype": "fp32", "flops": 0, "traffic_bytes": 96}
LINK = {"kind": "send", "ranks": 2, "payload_bytes": 64, "time_s": 4e-6}
FEW_S, MANY_S = 20.0, 60.0


class Machine:
    """A pool whose jobs answer at once; one of them breaks, if told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.breaks: str | None = None
        self.jobs: list[str] = []
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

    def run(self, job: str, *_: object) -> list[Any]:
        name = job.partition(":")[2]
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


def test_another_kind_of_sweep_starts_over(machine: Machine, tmp_path: Path) -> None:
    broken_at(machine, "measure_links")
    for budget_s, target in ((MANY_S, None), (FEW_S, Target(fresh=True))):
        machine.breaks = "measure_kernels"
        with pytest.raises(RunError):
            sweep.measure(budget_s, 2, None, target)
    machine.breaks = "measure_kernels"
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 2, None, Target(storage=tmp_path))
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 3)
    with pytest.raises(RunError):
        sweep.measure(FEW_S, 2, None, Target(device="H200-SXM-141GB"))
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
    profile = sweep.measure(FEW_S, 2, None, Target(storage=tmp_path))
    assert profile.skipped == ()
    assert [copy.kind for copy in profile.copies] == ["nvme_read"]
