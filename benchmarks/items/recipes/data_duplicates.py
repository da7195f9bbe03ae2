"""Near duplicates against the exact join of this machine; planted copies; files by imports."""

from __future__ import annotations

import ast
import random
import time
from collections.abc import Mapping
from typing import Any

import networkx
import numpy as np
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged, reported
from harness.work import Work
from support.recipes.corpus import Records, corpus, tenth
from support.recipes.recipe_runs import documents_of, stage_context

from shardwright.datasets.pipelines import near_duplicates
from shardwright.datasets.recipes.data_stage import Bucket
from shardwright.datasets.recipes.text_document import TextDocument
from shardwright.datasets.text_mining.imports import imports_first, named_files

LEAST_RECALL, MOST_SECONDS, JACCARD = 0.99, 60.0, 0.7
CONTEXT = stage_context("code", "law")
COPIES, EDITED_SHARE, LEAST_FOUND = 300, 0.02, 0.99
"""Planted copies, words of each that are others, and copies that must be found."""
REPOSITORIES = 20


def run(work: Work) -> Evidence:
    """Every part, on the corpus of this machine."""
    sources = corpus()
    if work.quick:
        sources = tenth(sources)
    rows = [*_near(sources), *_planted(sources, work.sized(COPIES, 20)), *_repositories(sources)]
    return Evidence(rows=rows)


def exact_pairs(sketch: Mapping[str, Any], threshold: float) -> set[tuple[int, int]]:
    """All pairs at least so alike, by a product of the incidence matrix with itself."""
    from scipy.sparse import csr_matrix

    found, columns = np.unique(sketch["values"], return_inverse=True)
    bounds = sketch["bounds"]
    sizes = np.diff(bounds)
    ones = np.ones(len(columns), dtype=np.int32)
    matrix = csr_matrix((ones, columns, bounds), shape=(len(sizes), len(found)))
    common = (matrix @ matrix.T).tocoo()
    is_upper = common.row < common.col
    one, other, both = common.row[is_upper], common.col[is_upper], common.data[is_upper]
    is_near = both >= threshold * (sizes[one] + sizes[other] - both)
    return set(zip(one[is_near].tolist(), other[is_near].tolist(), strict=True))


def _near(sources: Mapping[str, Records]) -> list[Row]:
    documents = documents_of(sources)
    value = near_duplicates.NearDuplicates(jaccard=JACCARD)
    start_s = time.monotonic()
    bucket = Bucket(first=0, documents=documents)
    sketch = near_duplicates.STAGE.sketch(value, bucket, CONTEXT)
    decisions = near_duplicates.STAGE.decide(value, [sketch], CONTEXT)
    seconds = time.monotonic() - start_s
    truth = exact_pairs(sketch, JACCARD)
    found = {(int(one), int(other)) for one, other in decisions["pairs"]}
    recall = len(found & truth) / len(truth)
    candidates = int(decisions["candidates"][0])
    keeper, lengths = decisions["keeper"], sketch["lengths"]
    dropped = np.flatnonzero(keeper != np.arange(len(keeper)))
    is_longest = bool((lengths[keeper[dropped]] >= lengths[dropped]).all())
    is_near = all(tuple(sorted((int(d), int(keeper[d])))) in truth for d in dropped)
    share = float(lengths[dropped].sum() / lengths.sum())
    per_source = sum(
        len(_dropped(value, [d for d in documents if d.source == name])) for name in sources
    )
    return [
        reported("corpus", f"{len(documents)} documents, {lengths.sum() / 1e6:.1f} M characters, "
                 f"{len(truth)} pairs of Jaccard >= {JACCARD}, {share:.1%} removable"),
        judged("near duplicates: recall of the exact pairs", f"{recall:.4f}",
               f"at least {LEAST_RECALL}", recall >= LEAST_RECALL, recall=recall),
        judged("near duplicates: precision after verification",
               f"{len(found & truth) / len(found):.4f} ({len(found) / candidates:.2f} before)",
               "1", found <= truth),
        judged("near duplicates: the longest stays, and what goes is near it",
               f"{is_longest and is_near}, {len(dropped)} dropped", "all", is_longest and is_near),
        judged("near duplicates: seconds on one core", f"{seconds:.1f} s",
               f"at most {MOST_SECONDS:g} s", seconds <= MOST_SECONDS, seconds=seconds),
        judged("near duplicates: over all sources against each alone",
               f"{len(dropped)} against {per_source}", "more", len(dropped) > per_source),
    ]  # fmt: skip


def _dropped(value: Any, documents: list[TextDocument]) -> Any:
    sketch = near_duplicates.STAGE.sketch(value, Bucket(first=0, documents=documents), CONTEXT)
    keeper = near_duplicates.STAGE.decide(value, [sketch], CONTEXT)["keeper"]
    return np.flatnonzero(keeper != np.arange(len(keeper)))


def _planted(sources: Mapping[str, Records], count: int) -> list[Row]:
    """Edited copies in sources of their own: over all against each source alone."""
    draw = random.Random(0)
    texts = [record for record in sources["library"] if len(record["text"].split()) > 300]
    chosen = draw.sample(texts, min(count, len(texts)))
    copies = [{**r, "source": f"copies{n % 3}", "text": _edited(r["text"], draw)}
              for n, r in enumerate(chosen)]  # fmt: skip
    documents = documents_of({**sources, "copies": copies})
    names = [(document.source, document.name) for document in documents]
    keeper = _keeper(documents)
    alone = {name: _keeper([d for d in documents if d.source == name])
             for name in ("copies0", "copies1", "copies2")}  # fmt: skip
    place = {name: row for row, name in enumerate(names)}
    pairs = [(place[c["source"], c["id"]], place["library", c["id"]]) for c in copies]
    found = sum(
        bool(keeper[copy] != copy or keeper[original] != original) for copy, original in pairs
    )
    seen = sum(int((rows != np.arange(len(rows))).sum()) for rows in alone.values())
    return [
        judged(f"copies with {EDITED_SHARE:.0%} of their words changed: found over all sources",
               f"{found} of {len(pairs)}; {seen} where each source is read alone",
               f"at least {LEAST_FOUND:.0%}, and fewer alone",
               found >= LEAST_FOUND * len(pairs) and seen < found, found=found, alone=seen),
    ]  # fmt: skip


def _edited(text: str, draw: random.Random) -> str:
    words = text.split(" ")
    long = [n for n, word in enumerate(words) if len(word) > 2 and word.isalpha()]
    for n in draw.sample(long, min(len(long), max(1, int(EDITED_SHARE * len(text.split()))))):
        words[n] = f"w{draw.randrange(10**6)}"
    return " ".join(words)


def _keeper(documents: list[TextDocument]) -> Any:
    value = near_duplicates.NearDuplicates(jaccard=JACCARD)
    sketch = near_duplicates.STAGE.sketch(value, Bucket(first=0, documents=documents), CONTEXT)
    return near_duplicates.STAGE.decide(value, [sketch], CONTEXT)["keeper"]


def _repositories(sources: Mapping[str, Records]) -> list[Row]:
    """Packages of the library and beside it: who imports whom by the parser, less what cycles."""
    folders: dict[str, dict[str, str]] = {}
    for record in (*sources["library"], *sources["installed"]):
        top, _, rest = record["id"].partition("/")
        if rest:
            folders.setdefault(top, {})[rest] = record["text"]
    largest = sorted(folders, key=lambda top: (-len(folders[top]), top))[:REPOSITORIES]
    pairs = kept = 0
    for top in largest:
        files = folders[top]
        imports = {path: _imported(top, path, text, files) for path, text in files.items()}
        graph = networkx.DiGraph([(a, b) for a, found in imports.items() for b in found])
        circle = {n: i for i, c in enumerate(networkx.strongly_connected_components(graph))
                  for n in c}  # fmt: skip
        named = {path: named_files(path, files[path], sorted(files), top) for path in sorted(files)}
        place = {path: n for n, path in enumerate(imports_first(named))}
        for a, b in graph.edges:
            if circle[a] != circle[b]:
                pairs += 1
                kept += int(place[b] < place[a])
    return [
        judged(f"{len(largest)} packages: imported files before the importing ones",
               f"{kept} of {pairs} imports outside cycles", "all", kept == pairs,
               kept=kept, imports=pairs),
    ]  # fmt: skip


def _imported(top: str, path: str, text: str, files: Mapping[str, str]) -> set[str]:
    """Files of a package that a module imports, by Python's own parser."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {_file(top, alias.name, files) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [top, *path.split("/")[: -node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                within = _file(top, f"{module}.{alias.name}", files)
                found.add(within or _file(top, module, files))
    return found - {path, ""}


def _file(top: str, module: str, files: Mapping[str, str]) -> str:
    """The file of a module of a package; empty for none of its."""
    first, *rest = module.split(".")
    stem = "/".join(rest)
    places = (f"{stem}.py", f"{stem}/__init__.py") if rest else ("__init__.py",)
    return next((place for place in places if first == top and place in files), "")


ITEM = Item(
    name="data_duplicates",
    shows="Near duplicates against exact answers, on a corpus that every machine has.",
    target=(
        "Recall of exact pairs >= 0.99, precision 1, the longest kept, 60 s on one core; copies "
        "across sources found; imported files first."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
    timed=True,
)
