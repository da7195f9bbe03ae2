"""Checkpoints beside torch's own: stall, end to end, load, and the step beside a save."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

from harness.shapes import EVERYTHING, Evidence, Item, Row, Table, judged, reported
from harness.work import Work
from ranks.rank_pools import RankPool

RANKS, RANK_BYTES, QUICK_BYTES = 4, 200 * 2**20, 8 * 2**20
REPEATS, FULL_REPEATS, QUICK_REPEATS = 3, 5, 1
SILENT_AFTER_S = 120.0
OF_SYNCHRONOUS, END_TO_END = 0.15, 1.1
STEP_NOISE = 1.05
"""A step beside a save may take so much longer than beside torch's: the clock of two cores."""


def run(work: Work) -> Evidence:
    """Save and load the same state both ways."""
    asked = {
        "rank_bytes": QUICK_BYTES if work.quick else RANK_BYTES,
        "repeats": work.sized(REPEATS, QUICK_REPEATS, FULL_REPEATS),
    }
    with tempfile.TemporaryDirectory() as folder, RankPool(RANKS, SILENT_AFTER_S) as pool:
        found = pool.run("ranks.torch_saves:beside", {**asked, "folder": folder})[0]
    return Evidence(rows=_rows(found), tables=[_table(found)])


def _rows(found: Mapping[str, float]) -> list[Row]:
    synchronous = found["ours stall"] / found["torch save"]
    pairs = (
        ("stall", found["ours stall"], found["torch stall"], 1.0, "async_save's stall"),
        ("stall", found["ours stall"], found["torch save"], OF_SYNCHRONOUS, "its save"),
        ("save to commit", found["ours end to end"], found["torch end to end"], END_TO_END,
         "async_save's"),
        ("load, digests checked", found["ours load"], found["torch load"], 1.0, "dcp.load"),
        ("step beside a save", found["ours step"], found["torch step"], STEP_NOISE,
         "beside async_save"),
    )  # fmt: skip
    rows = [
        judged(
            f"{name} over {theirs}",
            f"{ours / their_s:.2f} x ({ours:.3f} s against {their_s:.3f} s)",
            f"at most {bound} x",
            ours <= bound * their_s,
            ours_s=ours,
            torch_s=their_s,
        )
        for name, ours, their_s, bound, theirs in pairs
    ]
    rows.append(
        reported(
            "published, over DCP and MCP",
            "stalls 54.20 x less on average, saves up to 9.96 x, loads up to 8.80 x faster; ours "
            f"over torch's: {found['torch stall'] / found['ours stall']:.2f} x, "
            f"{found['torch end to end'] / found['ours end to end']:.2f} x, "
            f"{found['torch load'] / found['ours load']:.2f} x",
            stall_of_save=synchronous,
        )
    )
    return rows


def _table(found: Mapping[str, float]) -> Table:
    lines = [(name, f"{seconds:.3f}") for name, seconds in sorted(found.items())]
    return Table(title="Seconds, medians", columns=("what", "seconds"), rows=lines)


ITEM = Item(
    name="checkpoint_beside_torch",
    shows="Saving and loading are no slower than torch's distributed checkpoint.",
    target=(
        "4 ranks, 200 MiB a rank, median of 3: stall at most async_save's and 0.15 x its save; "
        "end to end at most 1.1 x async_save's; load with digests at most dcp.load; the step "
        "beside a save no slower."
    ),
    full_target="the same, median of 5.",
    run=run,
    reads=(*EVERYTHING, "tests/support/ranks/torch_saves.py",
           "tests/support/ranks/checkpoint_files.py", "tests/support/ranks/rank_pools.py"),
    timed=True,
)  # fmt: skip
