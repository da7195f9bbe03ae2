"""Bundled kernel times: complete, plausible, refused by table and size where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardwright.datasets.catalogue.device import devices
from shardwright.datasets.measured.convert import attention, experts, gemm, gridded
from shardwright.datasets.measured.timed_grid import read_timed_grid, timed_grid

ROWS = {"gemm": 119_301, "attention": 77_677, "experts": 107_793}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_is_there(name: str) -> None:
    grid = timed_grid(name)
    assert int(np.isfinite(grid.seconds).sum()) == ROWS[name]
    assert {device for device, _ in grid.tables} <= set(devices())
    assert "Apache-2.0" in grid.source


def test_no_product_is_above_the_peak() -> None:
    grid = timed_grid("gemm")
    m, n, k = (np.array(axis, dtype=np.float64) for axis in grid.axes.values())
    flops = 2 * m[:, None, None] * n[None, :, None] * k[None, None, :]
    for (device, dtype), times in zip(grid.tables, grid.seconds, strict=True):
        assert np.nanmax(flops / times) < devices()[device].peak_flops_per_s[dtype]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((0, 0, 0), 0.0, "'m': 1, 'n': 8"),
        ((0, 1, 1), -1.0, "'m': 2, 'n': 16"),
        ((0, 1, 0), np.inf, "no time"),
        ((0, 0, 1), 3000.0, "3000.0 s"),
    ],
)
def test_a_time_that_is_none_is_refused(
    tmp_path: Path, place: tuple[int, ...], value: float, words: str
) -> None:
    path = written(tmp_path)
    seconds = np.full((1, 2, 2), 1e-3, dtype=np.float32)
    seconds[place] = value
    np.save(path.with_suffix(".npy"), seconds)
    with pytest.raises(ValueError, match=r"H100") as error:
        read_timed_grid(path)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"axes": {"m": [2, 1], "n": [8, 16]}}, "does not ascend"),
        ({"axes": {"m": [1], "n": [8, 16]}}, "not float32"),
        ({"tables": [["H100-SXM-80GB", "bf16"]] * 2, "copies": 2}, "repeats"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    copies = change.pop("copies", 1)
    path = written(tmp_path, **change)
    np.save(path.with_suffix(".npy"), np.full((copies, 2, 2), 1e-3, dtype=np.float32))
    with pytest.raises(ValueError, match=words):
        read_timed_grid(path)


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    path = written(tmp_path)
    np.save(path.with_suffix(".npy"), np.array([[object()]]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"[Pp]ickle|Python objects"):
        read_timed_grid(path)


def written(folder: Path, **change: Any) -> Path:
    path = folder / "grid.json"
    description = {
        "source": "made up",
        "tables": [["H100-SXM-80GB", "bf16"]],
        "axes": {"m": [1, 2], "n": [8, 16]},
        **change,
    }
    path.write_text(json.dumps(description), encoding="utf-8")
    return path


def test_rows_become_a_grid() -> None:
    row = {"system": "h100_sxm", "gemm_dtype": "bfloat16", "m": 1, "n": 8, "k": 4}
    names, keys = gemm([row, {**row, "m": 2}])
    assert names == ["m", "n", "k"]
    (tables, *axes), seconds = gridded(keys, [1e-6, 2e-6])
    assert tables == [("H100-SXM-80GB", "bf16")]
    assert axes == [[1, 2], [8], [4]]
    assert seconds[0, :, 0, 0].tolist() == pytest.approx([1e-6, 2e-6])


def test_rows_that_repeat_or_have_no_time_are_refused_by_number() -> None:
    keys = [("H100-SXM-80GB", "bf16", 1), ("H100-SXM-80GB", "bf16", 1)]
    with pytest.raises(ValueError, match="row 1"):
        gridded(keys, [1e-6, 1e-6])
    with pytest.raises(ValueError, match="row 0: latency"):
        gridded(keys, [0.0, 1e-6])


def test_heads_and_models_are_numbered() -> None:
    row = {"system": "h100_sxm", "head_dim": 128, "num_heads": 16, "batch_size": 1, "isl": 64}
    keys = attention([{**row, "num_key_value_heads": n} for n in (8, 16)])[1]
    assert [key[3] for key in keys] == [3, 5]
    with pytest.raises(ValueError, match="num_key_value_heads 3 of 16"):
        attention([{**row, "num_key_value_heads": 3}])
    moe = {"system": "l40s", "moe_dtype": "fp8", "hidden_size": 64, "inter_size": 32, "topk": 2}
    moe |= {"num_experts": 8, "moe_tp_size": 1, "moe_ep_size": 4, "num_tokens": 16}
    (key,) = experts([{**moe, "distribution": "power_law_1.2"}])[1]
    assert key == ("L40S-48GB", "fp8", 0, 1, 1, 4, 16)
