"""A dry run of 2 % of the corpus against the whole run; mixtures as asked for."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work
from support.recipes.corpus import Records, corpus, tenth
from support.recipes.recipe_runs import recipe_file

from shardwright.api.recipes.prepare_data import prepare_data, recipe_at

MOST_TOKENS_ERROR, MOST_SECONDS_ERROR, DRY_SHARE = 0.05, 0.25, 0.02
MOST_SHARE_ERROR = 0.01


def run(work: Work) -> Evidence:
    """The dry run first, then the whole one."""
    sources = corpus()
    if work.quick:
        sources = tenth(sources)
    with tempfile.TemporaryDirectory(prefix="data-dry-run-") as scratch:
        return Evidence(rows=_whole(Path(scratch), sources))


def _whole(place: Path, sources: Mapping[str, Records]) -> list[Row]:
    path = recipe_file(place / "whole", sources, 4, 0)
    recipe = recipe_at(path)
    start_s = time.monotonic()
    guess = prepare_data(recipe, path.parent, None, 1, DRY_SHARE)
    guess_s = time.monotonic() - start_s
    start_s = time.monotonic()
    document = prepare_data(recipe, path.parent, path.parent / "out", 1)
    whole_s = time.monotonic() - start_s
    by_name = {stage["name"]: stage for stage in document["stages"]}
    errors = {
        stage["name"]: stage["out"]["tokens"] / by_name[stage["name"]]["total"]["out"]["tokens"] - 1
        for stage in guess["stages"]
    }
    kept = errors["rules"]
    seconds_error = guess["seconds"] / whole_s - 1
    mixture = by_name["mixture"]["facts"]
    share_error = max(abs(row["share"] - row["weight"]) for row in mixture.values())
    epochs = ", ".join(f"{name} {row['epochs']:.2f}" for name, row in mixture.items())
    return [
        judged("mixture: weights met", f"{share_error:.3%}, epochs {epochs}",
               f"within {MOST_SHARE_ERROR:.0%}", share_error <= MOST_SHARE_ERROR),
        judged("dry run of 2 %: tokens kept", f"{kept:+.1%}", f"within {MOST_TOKENS_ERROR:.0%}",
               abs(kept) <= MOST_TOKENS_ERROR, error=kept),
        judged("dry run of 2 %: seconds",
               f"{seconds_error:+.1%} of {whole_s:.0f} s, in {guess_s:.0f} s",
               f"within {MOST_SECONDS_ERROR:.0%}", abs(seconds_error) <= MOST_SECONDS_ERROR,
               error=seconds_error, seconds=whole_s),
    ]  # fmt: skip


ITEM = Item(
    name="data_dry_run",
    shows="A dry run of a sample says what the whole run keeps and takes.",
    target="From 2 %: tokens kept within 5 %, seconds within 25 %; mixture's weights within 1 %.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
    timed=True,
)
