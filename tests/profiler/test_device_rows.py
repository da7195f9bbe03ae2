"""Copies, drives and shared devices: what is measured where, and what is said where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler.store import cuda_facts as cuda_facts_module
from shardwright.profiler.store.cuda_facts import _queried_driver, cuda_facts, cuda_models
from shardwright.profiler.store.profile_rows import Measurements, with_measurements
from shardwright.profiler.store.profiles import fingerprint, machine_facts
from shardwright.profiler.timing import storage_timing
from shardwright.profiler.timing.copy_timing import KINDS, measure_copies
from shardwright.profiler.timing.overlap_timing import measure_sharing, sharing_factor
from shardwright.spec.cluster.machine_profile import CopyRow, MachineProfile
from shardwright.spec.codec import canonical_json, from_json
from shardwright.spec.errors import InputError

ALONE = RankContext(0, 1, torch.device("cpu"), 60.0, lambda event: None)
EMPTY = MachineProfile(
    fingerprint="made up", machine={}, ranks=1, measured_at="never", duration_s=1.0, kernels=()
)


def test_a_core_has_no_host_copies_and_shares_nothing() -> None:
    copies = measure_copies(ALONE, {"coarse": True, "budget_s": 1.0})
    assert copies["rows"] == []
    sharing = measure_sharing(ALONE, {})
    profile = with_measurements(
        EMPTY, Measurements(skipped=[*copies["skipped"], *sharing["skipped"]])
    )
    assert [item.op for item in profile.skipped] == [*KINDS, "launch", "overlap", "beside_product"]
    assert all("core" in item.why for item in profile.skipped)
    assert (
        with_measurements(profile, Measurements(skipped=copies["skipped"])).skipped
        == profile.skipped
    )
    assert from_json(MachineProfile, canonical_json(profile), "p") == profile


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_timing, "BLOCK_BYTES", 2**16)
    monkeypatch.setattr(storage_timing, "FILE_BYTES", (2**16, 2**18))


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("direct", [True, False])
def test_a_folder_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:
        monkeypatch.setattr(storage_timing, "DIRECT", 0)
    rows = [CopyRow(**row) for row in storage_timing.measure_storage(tmp_path)]
    assert [row.payload_bytes for row in rows] == [2**16, 2**16, 2**18, 2**18]
    assert all(row.time_s > 0 for row in rows)
    kinds = {row.kind for row in rows}
    cached = {"nvme_read_cached", "nvme_write_cached"}
    assert kinds in (({"nvme_read", "nvme_write"}, cached) if direct else (cached,))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.usefixtures("small_files")
def test_a_file_system_that_refuses_direct_transfers_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    written = storage_timing.os.pwrite
    tried: list[int] = []

    def only_later(*arguments: object) -> int:
        if not tried:
            tried.append(1)
            refuse()
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(storage_timing, "DIRECT", storage_timing.DIRECT or 1)
    monkeypatch.setattr(storage_timing.os, "pwrite", only_later)
    kinds = {row["kind"] for row in storage_timing.measure_storage(tmp_path)}
    assert kinds == {"nvme_read_cached", "nvme_write_cached"}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--nvme"):
        storage_timing.measure_storage(tmp_path / "none")


def test_a_full_drive_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage_timing, "_measure", full)
    with pytest.raises(InputError, match="No space"):
        storage_timing.measure_storage(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first_s", "second_s", "together_s", "factor"),
    [(2, 1, 2, 1), (2, 1, 2.5, 1.5), (1, 2, 3, 2), (1, 1, 5, 2), (2, 1, 1.5, 1)],
)
def test_the_sharing_factor(
    first_s: float, second_s: float, together_s: float, factor: float
) -> None:
    assert sharing_factor(first_s, second_s, together_s) == pytest.approx(factor)


def gpus(root: Path) -> None:
    """What the driver's files say of two GPUs."""
    driver = root / "proc/driver/nvidia"
    for bus, name in (("0000:18:00.0", "NVIDIA H200"), ("0000:2a:00.0", "NVIDIA H200")):
        folder = driver / "gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 1\n")
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    (driver / "version").write_text(line)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is searched for programs alone."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    _queried_driver.cache_clear()
    yield folder
    _queried_driver.cache_clear()


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("echo 580.65.06; echo 580.65.06", "580.65.06"),
        ("echo 'NVIDIA-SMI has failed: 12.3'", "unknown"),
        ("echo 580.65.06; exit 9", "unknown"),
        ("while :; do :; done", "unknown"),
    ],
)
def test_in_a_container_the_driver_s_tool_is_asked(
    tools: Path, monkeypatch: pytest.MonkeyPatch, script: str, driver: str
) -> None:
    monkeypatch.setattr(cuda_facts_module, "ASK_S", 2.0)
    tool = tools / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --query-gpu=driver_version ] || exit 2\n{script}\n')
    tool.chmod(0o755)
    assert cuda_facts(tools)["driver"] == driver


@pytest.mark.usefixtures("tools")
def test_gpus_and_driver_are_told_without_torch(tmp_path: Path) -> None:
    gpus(tmp_path)
    facts = cuda_facts(tmp_path)
    assert facts["gpus"] == "2 x NVIDIA H200"
    assert facts["driver"] == "580.65.06"
    assert set(facts) == {"gpus", "driver", "cuda", "nccl", "triton", "liger"}
    assert cuda_models(tmp_path) == ("NVIDIA H200", "NVIDIA H200")
    empty = cuda_facts(tmp_path / "none")
    assert (empty["gpus"], empty["driver"]) == ("unknown", "unknown")


def test_a_core_s_fingerprint_knows_no_gpu() -> None:
    assert "device" not in machine_facts()
    assert machine_facts("H200-SXM-141GB")["device"] == "H200-SXM-141GB"
    assert fingerprint() != fingerprint("H200-SXM-141GB") != fingerprint("H100-SXM-80GB")
