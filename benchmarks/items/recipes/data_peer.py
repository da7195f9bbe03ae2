"""Near duplicates by ours and by datatrove, on the same documents of this machine."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.paths import BENCHMARKS
from harness.processes import succeeded
from harness.shapes import EVERYTHING, Evidence, Item, Row, reported, unmeasured
from harness.work import Work
from items.recipes.data_duplicates import JACCARD, exact_pairs
from support.recipes.corpus import corpus, tenth
from support.recipes.recipe_runs import documents_of, stage_context

from shardwright.datasets.pipelines import near_duplicates
from shardwright.datasets.recipes.data_stage import Bucket
from shardwright.datasets.recipes.text_document import TextDocument

CONTEXT = stage_context("code", "law")
WANTED = "pip install 'datatrove[processing]' spacy 'xxhash<4' brings it"


def run(work: Work) -> Evidence:
    """Both on the whole corpus, in one process each."""
    if importlib.util.find_spec("datatrove") is None:
        return Evidence(rows=[unmeasured("datatrove", f"not installed: {WANTED}")])
    sources = tenth(corpus()) if work.quick else corpus()
    documents = documents_of(sources)
    with tempfile.TemporaryDirectory() as folder:
        theirs = _datatrove(Path(folder), documents)
    return Evidence(rows=_rows(documents, set(theirs["kept"]), theirs["seconds"]))


def _datatrove(folder: Path, documents: list[TextDocument]) -> dict[str, Any]:
    texts = folder / "texts"
    texts.mkdir()
    lines = [json.dumps({"id": str(n), "text": d.text}) + "\n" for n, d in enumerate(documents)]
    (texts / "0.jsonl").write_text("".join(lines), encoding="utf-8")
    peer = BENCHMARKS / "peers" / "datatrove_minhash.py"
    out = succeeded([sys.executable, str(peer), str(folder)]).out
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def _rows(documents: list[TextDocument], kept: set[str], their_s: float) -> list[Row]:
    value = near_duplicates.NearDuplicates(jaccard=JACCARD)
    start_s = time.monotonic()
    sketch = near_duplicates.STAGE.sketch(value, Bucket(first=0, documents=documents), CONTEXT)
    keeper = near_duplicates.STAGE.decide(value, [sketch], CONTEXT)["keeper"]
    our_s = time.monotonic() - start_s
    ours = np.flatnonzero(keeper != np.arange(len(keeper))).tolist()
    theirs = [n for n in range(len(documents)) if str(n) not in kept]
    near = {n for pair in exact_pairs(sketch, JACCARD) for n in pair}
    both = len(set(ours) & set(theirs))
    lengths = sketch["lengths"]
    return [
        reported("seconds, in one run", f"ours {our_s:.1f}, datatrove {their_s:.1f}: "
                 f"{their_s / our_s:.1f} x", ours_s=our_s, datatrove_s=their_s),
        reported(f"dropped of {len(documents)} documents",
                 f"ours {len(ours)}, datatrove {len(theirs)}, {both} by both",
                 ours=len(ours), datatrove=len(theirs), both=both),
        reported(f"dropped without any other of Jaccard >= {JACCARD}",
                 f"ours {len(set(ours) - near)}, datatrove {len(set(theirs) - near)}"),
        reported("characters dropped, of all",
                 f"ours {lengths[ours].sum() / lengths.sum():.1%}, "
                 f"datatrove {lengths[theirs].sum() / lengths.sum():.1%}"),
    ]  # fmt: skip


ITEM = Item(
    name="data_peer",
    shows="Near duplicates beside datatrove's MinHash on the same documents.",
    target="printed: kept sets and seconds of both; named where it is not installed.",
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes", "benchmarks/peers"),
)
