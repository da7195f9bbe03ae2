"""A search with three techniques in play beside the same search with none."""

from __future__ import annotations

import statistics

from harness.shapes import EVERYTHING, Evidence, Item, judged
from harness.work import Work
from support.lever_search import searched

PAIRS, FULL_PAIRS = 1, 3
LONGEST, MOST_BYTES, LARGEST_GAP = 3.0, 2**30, 0.02


def run(work: Work) -> Evidence:
    """Search with and without in turn, each in a process of its own."""
    count = work.sized(PAIRS, PAIRS, FULL_PAIRS)
    found = work.pieces([f"pair {n}" for n in range(count)], lambda _: _pair())
    ratio = statistics.median(pair["toys"]["seconds"] / pair["none"]["seconds"] for pair in found)
    last = found[-1]["toys"]
    return Evidence(
        rows=[
            judged(
                "its time over that of the search without techniques", f"{ratio:.2f}×",
                f"≤ {LONGEST:g}×", ratio <= LONGEST, ratio=ratio,
            ),
            judged(
                "its peak of resident memory", f"{last['peak_bytes'] / 2**20:.0f} MiB",
                "≤ 1 GiB", last["peak_bytes"] <= MOST_BYTES, peak_bytes=last["peak_bytes"],
            ),
            judged(
                "its gap", f"{last['gap']:.2%}", f"≤ {LARGEST_GAP:.0%}",
                last["gap"] <= LARGEST_GAP, gap=last["gap"],
            ),
        ]
    )  # fmt: skip


def _pair() -> dict[str, dict[str, float]]:
    return {word: searched(word) for word in ("none", "toys")}


ITEM = Item(
    name="levers_search",
    shows="A search with three toys of four values each beside the same search with none.",
    target="llama-3-70b on 8x8xH100: at most 3 times as long, 1 GiB, a gap of 2 %.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/lever_search.py", "tests/support/toys/levers.py"),
    timed=True,
)
