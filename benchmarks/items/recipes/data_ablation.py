"""A small language model on a duplicated and on a cleaned stream."""

from __future__ import annotations

from typing import Any

from harness.shapes import EVERYTHING, Evidence, Item, judged
from harness.work import Work
from support.recipes.corpus import corpus
from support.recipes.data_ablation import SEEDS, both_losses


def run(work: Work) -> Evidence:
    """Both losses before and after cleaning, seed by seed, two seeds at once."""
    work.spreads = True
    keys = [str(seed) for seed in SEEDS[: work.sized(len(SEEDS), 1)]]
    rows = []
    for key, found in zip(keys, work.pieces(keys, _losses_of), strict=True):
        training, held_out = found["training"], found["held_out"]
        rows.append(
            judged(
                f"cleaned stream, seed {key}: training and held-out loss",
                f"{training[0]:.2f} -> {training[1]:.2f}, {held_out[0]:.2f} -> {held_out[1]:.2f}",
                "training higher, held-out lower",
                training[1] > training[0] and held_out[1] < held_out[0],
                **found,
            )
        )
    return Evidence(rows=rows)


def _losses_of(key: str) -> dict[str, Any]:
    return both_losses(corpus(), int(key))


ITEM = Item(
    name="data_ablation",
    shows="What cleaning does to the losses of a small language model, at equal tokens.",
    target=(
        "Held-out loss lower and training loss higher after cleaning, for 3 seeds of 3, at "
        "1.2 million tokens a run; fewer do not tell."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
)
