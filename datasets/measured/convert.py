"""Convert tables of aiconfigurator-core to timed grids; for maintainers.

    python -m shardwright.datasets.measured.convert FOLDER

FOLDER holds gemm.parquet, attn_prefill_bf16.parquet and moe.parquet: one line a measurement,
``latency`` in milliseconds. A line that repeats the sizes of another, or that lacks a positive
latency, stops the conversion and is named by its number.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .timed_grid import FOLDER, SHARED_HEADS, Seconds

PACKAGE = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0)"
DEVICES = {
    "a100_sxm": "A100-SXM-80GB",
    "h100_sxm": "H100-SXM-80GB",
    "h200_sxm": "H200-SXM-141GB",
    "b200_sxm": "B200-SXM-180GB",
    "gb200": "GB200-186GB",
    "gb300": "GB300-279GB",
    "l40s": "L40S-48GB",
    "rtx_pro_6000_server": "RTX-PRO-6000-96GB",
}
DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
"""Types that are taken; fp8 in blocks is left out, for nothing prices it apart from fp8."""
Row = Mapping[str, Any]


def gemm(rows: Sequence[Row]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Axes of matrix products; device, type and sizes of each row."""
    keys = [(_device(r), DTYPES[_dtype(r)], r["m"], r["n"], r["k"]) for r in rows]
    return ["m", "n", "k"], keys


def attention(rows: Sequence[Row]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Axes of the forward of causal flash attention.

    Device, type and sizes of each row.
    """
    keys = []
    for r in rows:
        heads, kv_heads = r["num_heads"], r["num_key_value_heads"]
        if kv_heads not in (*SHARED_HEADS, heads):
            raise ValueError(f"num_key_value_heads {kv_heads} of {heads}")
        position = len(SHARED_HEADS) if kv_heads == heads else SHARED_HEADS.index(kv_heads)
        sizes = (position, heads, r["batch_size"], r["isl"])
        keys.append((_device(r), DTYPES[_dtype(r)], r["head_dim"], *sizes))
    return ["head_dim", "kv_place", "heads", "batch", "seq"], keys


def experts(rows: Sequence[Row]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Axes of fused experts.

    ``model`` numbers hidden, ffn, topk and experts in their order.
    """
    models, keys = _expert_models(rows), []
    for r in rows:
        model = models.index(_expert_model(r))
        uneven = int(r["distribution"] != "balanced")
        sizes = (model, uneven, r["moe_tp_size"], r["moe_ep_size"], r["num_tokens"])
        keys.append((_device(r), DTYPES[_dtype(r)], *sizes))
    return ["model", "uneven", "tp", "ep", "tokens"], keys


def _expert_models(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    return sorted({_expert_model(row) for row in rows})


def _expert_model(row: Row) -> tuple[int, ...]:
    names = ("hidden_size", "inter_size", "topk", "num_experts")
    return tuple(int(row[name]) for name in names)


def _device(row: Row) -> str:
    return DEVICES[row["system"]]


def _dtype(row: Row) -> str:
    """The printed type; the table of attention holds bf16 alone."""
    return str(row.get("gemm_dtype") or row.get("moe_dtype") or "bfloat16")


TABLES: dict[
    str, tuple[str, Callable[[Sequence[Row]], tuple[list[str], list[tuple[Any, ...]]]]]
] = {
    "gemm": ("gemm", gemm),
    "attention": ("attn_prefill_bf16", attention),
    "experts": ("moe", experts),
}


def gridded(
    keys: Sequence[tuple[Any, ...]], seconds: Sequence[float]
) -> tuple[list[list[Any]], Seconds]:
    """Tables and axes, each ascending, and the seconds over them.

    Raises:
        ValueError: a row without a time, or one that repeats the sizes of another, by its number.
    """
    tables = sorted({key[:2] for key in keys})
    axes: list[list[Any]] = [tables]
    axes += [sorted({key[i] for key in keys}) for i in range(2, len(keys[0]))]
    indices = [{value: i for i, value in enumerate(axis)} for axis in axes]
    grid = np.full([len(axis) for axis in axes], np.nan, dtype=np.float32)
    for number, (key, time_s) in enumerate(zip(keys, seconds, strict=True)):
        values = (key[:2], *key[2:])
        cell = tuple(index[value] for index, value in zip(indices, values, strict=True))
        if not time_s > 0:
            raise ValueError(f"row {number}: latency of {key} is {time_s}, not above 0")
        if not np.isnan(grid[cell]):
            raise ValueError(f"row {number}: {key} was there before")
        grid[cell] = time_s
    return axes, grid


def convert(name: str, folder: Path) -> None:
    """Write one grid beside this module."""
    table, keys_of = TABLES[name]
    path = folder / f"{table}.parquet"
    rows = importlib.import_module("pyarrow.parquet").read_table(path).to_pylist()
    rows = [row for row in rows if _dtype(row) in DTYPES]
    names, keys = keys_of(rows)
    (tables, *axes), seconds = gridded(keys, [row["latency"] * 1e-3 for row in rows])
    description: dict[str, Any] = {
        "source": f"{table} of {PACKAGE}",
        "tables": tables,
        "axes": dict(zip(names, axes, strict=True)),
    }
    if name == "experts":
        description["models"] = _expert_models(rows)
    (FOLDER / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    np.save(FOLDER / f"{name}.npy", seconds, allow_pickle=False)


def main(arguments: list[str]) -> int:
    """Convert every table of the folder named by the only argument."""
    for name in TABLES:
        convert(name, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
