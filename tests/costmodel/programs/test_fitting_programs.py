"""Fitting of learners over leaves: refused rows, constants found again, equal bytes."""

from __future__ import annotations

import numpy as np
import pytest

from shardwright.costmodel.fitting.tile_constants import fit_constants
from shardwright.costmodel.fitting.transformer_fit import ProgramRows, Settings, fit_transformer
from shardwright.costmodel.programs.kernels import program_of
from shardwright.costmodel.programs.sequence import leaves_of
from shardwright.costmodel.programs.tile_work import TileConstants, rates, tile_work, tiled_seconds
from shardwright.datasets.catalogue.device import device
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel


def _rows(count: int) -> ProgramRows:
    random = np.random.default_rng(1)
    sizes = random.integers(64, 4096, (count, 3)).tolist()
    leaves = leaves_of([program_of(Kernel("matmul", tuple(x), "bf16", 1, 1)) for x in sizes])
    time_s = np.exp(leaves.features[:, 0, 10].astype(float))
    devices = np.ones((count, 3), np.float32)
    return ProgramRows(leaves, devices, np.ones(count), time_s, np.ones(count))


@pytest.mark.parametrize("poison", [-1.0, float("nan"), 0.0, 1e6])
def test_a_poisoned_row_is_refused_by_name(poison: float) -> None:
    rows = _rows(20)
    rows.time_s[7] = poison
    with pytest.raises(InputError, match="row 7: time_s"):
        fit_transformer(rows, Settings(epochs=1))


@pytest.mark.timeout(300)
def test_training_in_a_child_gives_equal_arrays_and_learns() -> None:
    rows = _rows(64)
    first, second = (fit_transformer(rows, Settings(epochs=25)) for _ in range(2))
    assert all(np.array_equal(first.weights[n], second.weights[n]) for n in first.weights)
    errors = np.abs(first.at(rows.leaves, rows.devices) - rows.labels)
    assert errors.mean() < 0.3 * np.abs(rows.labels - np.median(rows.labels)).mean()


def test_constants_of_made_up_seconds_are_found() -> None:
    random = np.random.default_rng(2)
    shapes = [(int(2 ** random.integers(0, 6)), 32, 8, int(2 ** random.integers(4, 13)), 128)
              for _ in range(300)]  # fmt: skip
    work = tile_work([program_of(Kernel("flash_attention", s, "bf16", 1, 1)) for s in shapes])
    on = rates([device("H100")] * len(shapes), "bf16")
    true = TileConstants(prologue_cycles=6e3, math_share=0.6)
    true_s = tiled_seconds(work, on, true)
    found = fit_constants(work, on, true_s, np.ones(len(shapes)))
    before, after = (
        np.abs(tiled_seconds(work, on, x) / true_s - 1).mean() for x in (TileConstants(), found)
    )
    assert after < 0.05
    assert before > 5 * after
