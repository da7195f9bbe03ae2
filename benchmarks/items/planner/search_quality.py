"""Gaps of searches, over models and clusters of all sizes."""

from __future__ import annotations

import json
from typing import Any

from harness.processes import plan_command, question_words, succeeded
from harness.shapes import PLANNING, Evidence, Item, Row, Table, reported
from harness.work import Work

CASES = (
    ("gpt2", "1xA100-80GB", 64, 1024),
    ("gpt2-xl", "8xA100-80GB", 128, 1024),
    ("gpt2-xl", "2x8xV100-32GB", 128, 1024),
    ("llama-2-7b", "8xH100-80GB", 128, 4096),
    ("llama-3-8b", "2x8xH100-80GB", 256, 8192),
    ("mistral-7b", "8xA100-40GB", 128, 4096),
    ("qwen3-8b", "4x8xB200", 256, 8192),
    ("llama-2-13b", "4x8xA800-80GB", 256, 4096),
    ("qwen2.5-32b", "4x8xH200", 256, 8192),
    ("llama-2-70b", "8x8xH800-80GB", 512, 4096),
    ("llama-3-70b", "8x8xH100-80GB", 512, 8192),
    ("llama-3-70b", "32x8xH100-80GB", 1024, 8192),
    ("gpt3-175b", "64x8xA100-80GB", 1536, 2048),
    ("llama-3.1-405b", "16x8xH100-80GB", 512, 8192),
    ("llama-3.1-405b", "128x8xH100-80GB", 1024, 8192),
)
DRAWN = 6
"""Cases of the short form."""
COLUMNS = ("model", "cluster", "batch", "sequence", "step s", "bound s", "gap", "simulated",
           "stopped by", "MFU", "search s")  # fmt: skip


def run(work: Work) -> Evidence:
    """Plan for every case, as its own process."""
    cases = {f"{m} on {c}, {b} x {s}": (m, c, b, s) for m, c, b, s in CASES}
    names = work.sample(list(cases), DRAWN, 4)
    pieces = work.pieces(names, lambda name: _search(*cases[name]))
    gaps = sorted(piece["gap"] for piece in pieces if piece["gap"] is not None)
    rows = [_row(name, piece) for name, piece in zip(names, pieces, strict=True)]
    if gaps:
        middle = gaps[len(gaps) // 2]
        rows.append(
            reported(
                "gaps of all cases",
                f"median {middle:.1%}, largest {gaps[-1]:.1%}, zero in "
                f"{sum(g == 0 for g in gaps)} of {len(gaps)}",
                median_gap=middle,
                largest_gap=gaps[-1],
            )
        )
    lines = [[str(x) for x in (*cases[n], *_cells(p))] for n, p in zip(names, pieces, strict=True)]
    return Evidence(rows=rows, tables=[Table(title="Every search", columns=COLUMNS, rows=lines)])


def _search(model: str, cluster: str, batch: int, seq_len: int) -> dict[str, Any]:
    done = succeeded([*plan_command(), *question_words(model, cluster, batch, seq_len)])
    document = json.loads(done.out)
    prediction, search = document["prediction"], document["search"]
    return {
        "step_time_s": prediction["step_time_s"],
        "mfu": prediction["mfu"],
        "wall_s": done.wall_s,
        **{k: search[k] for k in ("lower_bound_s", "gap", "candidates", "stopped_by")},
    }


def _row(name: str, piece: dict[str, Any]) -> Row:
    return reported(name, f"gap {piece['gap']:.1%}, stopped by {piece['stopped_by']}", **piece)


def _cells(piece: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{piece['step_time_s']:.4g}",
        f"{piece['lower_bound_s']:.4g}",
        f"{piece['gap']:.1%}",
        str(piece["candidates"]),
        piece["stopped_by"],
        f"{piece['mfu']:.1%}",
        f"{piece['wall_s']:.1f}",
    )


ITEM = Item(
    name="search_quality",
    shows="How far the plans found are from the bound that is proven, at real sizes.",
    target="none: the gaps of 6 of 15 searches are printed.",
    full_target="none: the gaps of 15 searches are printed.",
    run=run,
    reads=(*PLANNING, "api", "benchmarks/harness/processes.py"),
    timed=True,
)
