"""A plan for a recipe's lengths, its run on that data, and the plan of one length."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.shapes import EVERYTHING, Evidence, Item
from harness.work import Work
from support.recipes.corpus import corpus
from support.recipes.packed_plans import length_rows

STEPS, FEW_STEPS = 10, 3


def run(work: Work) -> Evidence:
    """Short texts in windows of two sizes; the smaller ones are run."""
    with tempfile.TemporaryDirectory(prefix="data-lengths-") as scratch:
        return Evidence(rows=length_rows(Path(scratch), corpus(), work.sized(STEPS, FEW_STEPS)))


ITEM = Item(
    name="data_lengths",
    shows="A recipe's lengths in a plan, against the run on its data and a plan of one length.",
    target="tokens/s within 20 % of the run; another plan where prices differ by 10 %.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
    timed=True,
)
