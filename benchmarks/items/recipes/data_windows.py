"""Windows by likeness against plain ways, a mixed-integer program, and a straight line of seconds.

Likeness is judged under an embedding that took no part.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from harness.shapes import EVERYTHING, Evidence, Item, Row, judged
from harness.work import Work
from support.recipes.corpus import Records, corpus, tenth
from support.recipes.recipe_runs import documents_of, text_vectors
from support.recipes.window_program import best_likeness

from shardwright.datasets.pipelines.windows import Windows, likeness_windows, manifest
from shardwright.datasets.recipes.text_document import TextDocument
from shardwright.datasets.text_mining.embed import unit
from shardwright.datasets.text_mining.fill_windows import cut_long, fill_best, fill_in_order
from shardwright.datasets.text_mining.window_search import fill_alike, likeness

MOST_WASTE, LEAST_OF_PROGRAM = 0.05, 0.9
CASES, CASE_DOCUMENTS = 100, 12
COUNTS, TOPICS, MOST_POWER = (12_500, 25_000, 50_000, 100_000), 200, 1.15
"""Documents, topics that they fall into, and the power of documents that counts as linear."""


def run(work: Work) -> Evidence:
    """Every part."""
    sources = corpus()
    if work.quick:
        sources = tenth(sources)
    rows = [
        *_windows(sources),
        *_program(work.sized(CASES, 5)),
        *_linear(COUNTS[: work.sized(4, 2)]),
    ]
    return Evidence(rows=rows)


def _windows(sources: Mapping[str, Records]) -> list[Row]:
    """Windows of tokens by word, and of four bytes each, as usual tokenizers have them."""
    documents = [d for d in documents_of(sources) if len(d.text) < 400_000]
    lengths = np.array([len(d.text) // 4 + 1 for d in documents], dtype=np.int64)
    vectors = text_vectors([d.text for d in documents])
    judges = _other_vectors(documents)
    domains = np.array([d.name.split("/")[0] for d in documents])
    rows = []
    for size in (2048, 8192):
        value = Windows(tokens=size)
        start_s = time.monotonic()
        made = likeness_windows(lengths, vectors, value)
        seconds = time.monotonic() - start_s
        order = np.random.default_rng(0).permutation(len(lengths))
        fit = cut_long(lengths, size)
        ways = {
            "likeness": made,
            "random": fill_in_order(lengths, order, size),
            "fit": (fit, fill_best(fit.lengths, size)),
        }
        found = {name: _scores(*way, size, judges, domains) for name, way in ways.items()}
        ours, plain = found["likeness"], found["random"]
        ratio = ours["likeness"] / plain["likeness"]
        lost = int(lengths.sum() - made[0].lengths.sum())
        rows += [
            judged(f"windows of {size}: likeness against random ones", f"{ratio:.2f} x "
                   f"({ours['likeness']:.3f}, {plain['likeness']:.3f}; fit "
                   f"{found['fit']['likeness']:.3f})", "at least 2 x", ratio >= 2, ratio=ratio),
            judged(f"windows of {size}: purity of folders", f"{ours['purity']:.2f} against "
                   f"{plain['purity']:.2f}", "up", ours["purity"] > plain["purity"]),
            judged(f"windows of {size}: cuts", f"{ours['cuts']:.0f}; fit {found['fit']['cuts']:.0f}"
                   f", random {plain['cuts']:.0f}", "at most those of best fit",
                   ours["cuts"] <= found["fit"]["cuts"]),
            judged(f"windows of {size}: waste", f"{ours['waste']:.2%}; fit "
                   f"{found['fit']['waste']:.2%}", f"at most {MOST_WASTE:.0%}",
                   ours["waste"] <= MOST_WASTE),
            judged(f"windows of {size}: tokens lost", f"{lost}, {seconds:.1f} s", "0", lost == 0),
        ]  # fmt: skip
    return rows


def _other_vectors(documents: list[TextDocument]) -> Any:
    """Unit vectors of hashed triples of characters: no part of the windows' embedding."""
    from scipy.sparse import csr_matrix
    from sklearn.random_projection import SparseRandomProjection

    rows, columns, values = [], [], []
    for row, document in enumerate(documents):
        data = np.frombuffer(document.text[:30_000].encode(), dtype=np.uint8).astype(np.uint32)
        grams = (data[:-2] << 16) + (data[1:-1] << 8) + data[2:] if len(data) > 2 else data
        found, counts = np.unique(grams % 65521, return_counts=True)
        rows.append(np.full(len(found), row))
        columns.append(found)
        values.append(1 + np.log(counts))
    shape = (len(documents), 65521)
    place = (np.concatenate(rows), np.concatenate(columns))
    matrix = csr_matrix((np.concatenate(values), place), shape=shape)
    seen = np.asarray((matrix > 0).sum(axis=0)).reshape(-1)
    matrix = matrix.multiply(np.log((1 + shape[0]) / (1 + seen))).tocsr()
    made = SparseRandomProjection(256, random_state=0, dense_output=True).fit_transform(matrix)
    return unit(made)


def _scores(pieces: Any, windows: Any, size: int, vectors: Any, domains: Any) -> dict[str, float]:
    """Mean likeness of the pairs of different documents in a window, purity, cuts and waste."""
    shown = manifest(pieces, windows, size)
    alike, pure = [], []
    starts = np.flatnonzero(np.diff(shown["window"], prepend=-1))
    for part in np.split(shown["document"], starts[1:]):
        members = np.unique(part)
        if len(members) < 2:
            continue
        total = vectors[members].sum(axis=0)
        count = len(members)
        own = float(np.sum(vectors[members] ** 2))
        alike.append((float(total @ total) - own) / (count * (count - 1)))
        pure.append(np.unique(domains[members], return_counts=True)[1].max() / count)
    count = int(windows.max()) + 1
    return {
        "likeness": float(np.mean(alike)),
        "purity": float(np.mean(pure)),
        "cuts": float(len(windows) - len(np.unique(pieces.documents))),
        "waste": 1 - float(pieces.lengths.sum()) / (count * size),
    }


def _program(cases: int) -> list[Row]:
    ratios = []
    for seed in range(cases):
        draw = np.random.default_rng(seed)
        topics = unit(np.abs(draw.normal(size=(4, 16))))
        noise = 0.35 * np.abs(draw.normal(size=(CASE_DOCUMENTS, 16)))
        vectors = unit(topics[draw.integers(0, 4, CASE_DOCUMENTS)] + noise)
        lengths = draw.integers(50, 400, CASE_DOCUMENTS)
        size = 1000
        count = -(-int(lengths.sum() * 1.15) // size)
        windows = fill_alike(lengths, vectors, size, count)
        if (windows < 0).any():
            ratios.append(0.0)
            continue
        ratios.append(likeness(windows, vectors) / best_likeness(lengths, vectors, size, count))
    met = sum(ratio >= LEAST_OF_PROGRAM for ratio in ratios)
    return [
        judged("windows of 12 documents against a mixed-integer program",
               f"{met} of {cases} at least {LEAST_OF_PROGRAM:.0%}, mean {np.mean(ratios):.3f}, "
               f"least {min(ratios):.3f}", "all", met == cases, least=min(ratios)),
    ]  # fmt: skip


def _linear(counts: tuple[int, ...]) -> list[Row]:
    """Clustering and filling of documents of many topics, embedded already."""
    seconds = []
    for count in counts:
        draw = np.random.default_rng(0)
        topics = unit(draw.normal(size=(TOPICS, 64)))
        noise = 0.08 * draw.normal(size=(count, 64))
        vectors = unit(topics[draw.integers(0, TOPICS, count)] + noise)
        lengths = np.minimum(draw.lognormal(6.5, 1.0, count).astype(np.int64) + 8, 32_768)
        start_s = time.monotonic()
        likeness_windows(lengths, vectors, Windows(tokens=8192))
        seconds.append(time.monotonic() - start_s)
    power = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    shown = ", ".join(f"{n:,} in {s:.1f} s" for n, s in zip(counts, seconds, strict=True))
    return [
        judged("windows: seconds by documents", f"{shown}: documents to the power {power:.2f}",
               f"linear: at most {MOST_POWER:g}", power <= MOST_POWER, power=power,
               seconds=seconds),
    ]  # fmt: skip


ITEM = Item(
    name="data_windows",
    shows="Windows of documents that belong together, against plain ways and the best ones.",
    target=(
        "Twice as alike as random ones, purity up, cuts at most best fit's, waste at most 5 %, no "
        "token lost; at least 90 % of a program's likeness; seconds linear in documents."
    ),
    run=run,
    reads=(*EVERYTHING, "benchmarks/support/recipes"),
    timed=True,
)  # fmt: skip
