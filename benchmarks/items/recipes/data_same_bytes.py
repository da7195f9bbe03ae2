"""A recipe's result under orders, shards, processes and kills: the same bytes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work
from support.recipes.corpus import Records, corpus, tenth
from support.recipes.recipe_runs import content, prepared, recipe_file

from shardwright.datasets.preparation.ledger import is_balanced

KILLS = 15


def run(work: Work) -> Evidence:
    """Twelve ways to the same result, and kills at random moments, on a tenth of the corpus."""
    with tempfile.TemporaryDirectory(prefix="data-same-bytes-") as scratch:
        return Evidence(rows=_same_bytes(Path(scratch), tenth(corpus()), work.sized(KILLS, 2)))


def _same_bytes(place: Path, sources: Mapping[str, Records], kills: int) -> list[Row]:
    results = []
    for order in (0, 1):
        for shards in (1, 3, 7):
            path = recipe_file(place / f"{order}-{shards}", sources, shards, order)
            for jobs in (1, 2):
                out = path.parent / f"out{jobs}"
                prepared(path, out, jobs)
                results.append(content(out))
    alike = sum(result == results[0] for result in results)
    document = json.loads(results[0]["data.json"])
    balanced = [is_balanced(row) for s in document["stages"] for row in s["domains"].values()]
    links = [
        one["total"]["out"] == other["total"]["in"]
        for one, other in zip(document["stages"], document["stages"][1:], strict=False)
    ]
    same, hit = _killed(place / "0-3" / "recipe.json", place, kills, results[0])
    return [
        judged("orders, shards, processes: the same bytes", f"{alike} of {len(results)}", "all",
               alike == len(results)),
        judged("tokens kept, cut or dropped by name, stage by stage",
               f"{sum(balanced)} of {len(balanced)} accounts, {sum(links)} of {len(links)} links",
               "all", all(balanced) and all(links)),
        judged("killed and gone on: the same bytes", f"{same} of {kills} ({hit} hit)", "all",
               same == kills),
    ]  # fmt: skip


def _killed(path: Path, place: Path, kills: int, wanted: dict[str, bytes]) -> tuple[int, int]:
    """Results that are the same after a kill, and kills that hit a run under way."""
    command = [sys.executable, "-m", "shardwright.api.cli.main", "data", str(path)]
    start_s = time.monotonic()
    subprocess.run([*command, "--out", str(place / "timed")], check=True, capture_output=True)
    whole_s = time.monotonic() - start_s
    draw, same, hit = random.Random(1), 0, 0
    for number in range(kills):
        out = place / f"killed{number}"
        child = subprocess.Popen(
            [*command, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            child.wait(draw.uniform(0.2, 0.95) * whole_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            hit += out.exists()
        prepared(path, out)
        same += content(out) == wanted
        shutil.rmtree(out)
    return same, hit


ITEM = Item(
    name="data_same_bytes",
    shows="A recipe's result is the same whatever order, shards, processes and kills.",
    target="12 of 12 combinations and 15 of 15 kills, and every token accounted for by name.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
    timed=True,
)
