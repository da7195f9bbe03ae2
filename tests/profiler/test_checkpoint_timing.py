"""Rates of a folder for checkpoints, measured in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shardwright.executor.launch.rank_context import RankContext
from shardwright.profiler.store.profile_rows import Measurements, with_measurements
from shardwright.profiler.sweep import _empty
from shardwright.profiler.timing import checkpoint_timing
from shardwright.profiler.timing.checkpoint_timing import measure_checkpoint
from shardwright.spec.cluster.machine_profile import CHECKPOINT_KINDS
from shardwright.spec.errors import InputError

ALONE = RankContext(0, 1, torch.device("cpu"), 60.0, lambda _: None)


def test_every_kind_is_measured_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_timing, "RANK_BYTES", (2**12, 2**20))
    rows = measure_checkpoint(ALONE, {"folder": str(tmp_path)})
    profile = with_measurements(_empty(1, "cpu"), Measurements(copies=rows))
    assert {row.kind for row in profile.copies} == set(CHECKPOINT_KINDS)
    assert {row.payload_bytes for row in profile.copies} == {2**12, 2**20}
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--checkpoint"):
        measure_checkpoint(ALONE, {"folder": str(tmp_path / "none")})
