"""Windows: sequences of one length, filled with documents that belong together.

DataSculpt (arXiv:2409.00997) in two phases: clusters of embedded documents, then greedy filling.
Nothing is dropped: what no window of its cluster has room for goes where it fits best, and only
documents longer than a window are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ...spec.limits import MAX_SEQ_LEN
from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, kept
from ..text_mining.arrays import joined, ragged
from ..text_mining.embed import embedding, word_counts
from ..text_mining.fill_windows import Pieces, cut_long, fill_best, fill_by_likeness, fill_in_order
from ..text_mining.split_and_merge import clusters

Order = Literal["likeness", "random", "concat", "fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Settings.

    ``tokens``: of a window. ``order``: likeness, or one of the plain ways: ``random`` and
    ``concat`` lay documents end to end, shuffled or by source, ``fit`` takes the fullest window.
    ``distance``: of clusters' centers, below which they merge and beyond which a document begins
    one. ``rounds``: of clustering at most. ``dimensions``: of embeddings.
    """

    tokens: Annotated[int, Field(ge=2, le=MAX_SEQ_LEN)]
    order: Order = "likeness"
    distance: Annotated[float, Field(gt=0, le=2)] = 0.5
    rounds: Annotated[int, Field(ge=1, le=100)] = 5
    dimensions: Annotated[int, Field(ge=2, le=1024)] = 64


def _sketch(value: Windows, bucket: Bucket, context: StageContext) -> Arrays:
    places = {name: place for place, name in enumerate(context.domains)}
    words = [word_counts(d.text) for d in bucket.documents] if value.order == "likeness" else []
    columns = ragged([columns for columns, _ in words], "uint32")
    counts = ragged([counts for _, counts in words], "float32")
    return {
        **columns,
        "counts": counts["values"],
        "lengths": np.array([d.tokens + 1 for d in bucket.documents], dtype=np.int64),
        "domains": np.array([places[d.domain] for d in bucket.documents], dtype=np.int64),
        "names": np.array(
            [f"{d.source}\n{d.name}".encode("utf-8", "surrogatepass") for d in bucket.documents]
            or [b""],
            dtype=np.bytes_,
        )[: len(bucket.documents)],
    }


def _decide(value: Windows, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    lengths = joined(sketches, "lengths").astype(np.int64)
    if value.order == "likeness":
        vectors = embedding(sketches, value.dimensions, context.seed)
        pieces, windows = likeness_windows(lengths, vectors, value)
    elif value.order == "fit":
        pieces = cut_long(lengths, value.tokens)
        windows = fill_best(pieces.lengths, value.tokens)
    else:
        order = np.argsort(joined(sketches, "names"), kind="stable")
        if value.order == "random":
            order = np.random.default_rng(context.seed).permutation(len(lengths))
        pieces, windows = fill_in_order(lengths, order, value.tokens)
    return manifest(pieces, windows, value.tokens)


def likeness_windows(lengths: Any, vectors: Any, value: Windows) -> tuple[Pieces, Any]:
    """Windows by likeness: cut, cluster, fill."""
    pieces = cut_long(lengths, value.tokens)
    labels = clusters(vectors, value.distance, value.rounds)
    windows = fill_by_likeness(
        pieces.lengths, vectors[pieces.documents], labels[pieces.documents], value.tokens
    )
    return pieces, windows


def manifest(pieces: Pieces, windows: Any, size: int) -> Arrays:
    """Pieces in the order of windows, with their places in them."""
    order = np.lexsort((pieces.starts, pieces.documents, windows))
    window = windows[order]
    length = pieces.lengths[order]
    ends = np.cumsum(length)
    is_first = np.ones(len(window), dtype=bool)
    is_first[1:] = window[1:] != window[:-1]
    before = ends - length
    offset = before - np.maximum.accumulate(np.where(is_first, before, 0))
    return {
        "window": window,
        "offset": offset,
        "document": pieces.documents[order],
        "start": pieces.starts[order],
        "length": length,
        "size": np.array([size]),
    }


def _run(value: Windows, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    return [kept(document) for document in bucket.documents]


def _facts(value: Windows, decisions: Arrays) -> dict[str, Any]:
    count = int(decisions["window"][-1]) + 1 if len(decisions["window"]) else 0
    used = int(decisions["length"].sum())
    documents = len(np.unique(decisions["document"]))
    pieces = len(decisions["window"])
    return {
        "windows": count,
        "size": value.tokens,
        "order": value.order,
        "pieces_a_window": pieces / count if count else 0.0,
        "cuts": pieces - documents,
        "waste": 1 - used / (count * value.tokens) if count else 0.0,
    }


STAGE = DataStage(
    name="windows",
    value=Windows,
    scope="corpus",
    help="Sequences of one length are filled with documents that belong together.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    needs=("sklearn",),
    facts=_facts,
)
