"""Quality: a linear classifier of hashed n-grams, grown from a user's seeds by hard examples.

In the first round good seeds stand against bad ones, or against texts of the corpus drawn by seed;
in each later round the bad examples are those that the round before found best, as in iterative
distillation (BaichuanSEED, arXiv:2408.15079, 3), with seeds as the teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept
from ..text_mining.arrays import joined, ragged
from ..text_mining.shingles import mixed, ngram_hashes, word_hashes
from ..text_mining.user_texts import user_texts

COLUMNS = 1 << 16
READ_CHARACTERS = 20_000
"""Of a document, enough for its kind."""
ASCENT_STEPS, RATE, DECAY = 200, 2.0, 1e-4
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Settings.

    ``good``, ``bad``: files with seeds; without bad ones, texts of the corpus stand for them.
    ``keep``: share of the other documents that stays, the best. ``rounds`` of hard examples, each
    the ``hard`` best-scored share of what stands for bad. ``but``: domains that are left alone.
    """

    good: Annotated[tuple[str, ...], Field(min_length=1)]
    bad: tuple[str, ...] = ()
    keep: Annotated[float, Field(gt=0, le=1)] = 0.5
    rounds: Annotated[int, Field(ge=1, le=20)] = 3
    hard: Annotated[float, Field(gt=0, le=1)] = 0.25
    but: tuple[str, ...] = ()


def _features(text: str) -> Array:
    """Columns of a text's words and pairs of words."""
    words = word_hashes(text[:READ_CHARACTERS])
    grams = np.concatenate((mixed(words), ngram_hashes(words, 2)))
    return np.unique(grams % np.uint64(COLUMNS)).astype(np.uint32)


def _sketch(value: Quality, bucket: Bucket, context: StageContext) -> Arrays:
    rows = [_features(document.text) for document in bucket.documents]
    judged = [document.domain not in value.but for document in bucket.documents]
    return {**ragged(rows, "uint32"), "judged": np.array(judged, dtype=bool)}


def _matrix(values: Array, bounds: Array) -> Any:
    from scipy.sparse import csr_matrix

    sizes = np.diff(bounds)
    weights = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes)
    return csr_matrix((weights, values, bounds), shape=(len(sizes), COLUMNS))


def _seeds(names: tuple[str, ...], context: StageContext) -> Any:
    rows = [_features(text) for text in user_texts(names, context.folder, "quality")]
    arrays = ragged(rows, "uint32")
    return _matrix(arrays["values"], arrays["bounds"])


def fitted(good: Any, bad: Any) -> tuple[Array, float]:
    """Weights and offset of a logistic regression, both classes weighing the same.

    Plain gradient ascent from zero: no draw, no thread, the same bits each time.
    """
    weights, offset = np.zeros(COLUMNS), 0.0
    for step in range(ASCENT_STEPS):
        rate = RATE / (1 + step / ASCENT_STEPS)
        miss_good = 1 - _probability(good @ weights + offset)
        miss_bad = -_probability(bad @ weights + offset)
        slope = good.T @ miss_good / good.shape[0] + bad.T @ miss_bad / bad.shape[0]
        weights += rate * (slope - DECAY * weights)
        offset += rate * float(miss_good.mean() + miss_bad.mean())
    return weights, offset


def _probability(scores: Array) -> Array:
    values: Array = 1 / (1 + np.exp(-scores))
    return values


def _decide(value: Quality, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    sizes = np.concatenate([np.diff(sketch["bounds"]) for sketch in sketches])
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    corpus = _matrix(joined(sketches, "values"), bounds)
    judged = joined(sketches, "judged").astype(bool)
    good = _seeds(value.good, context)
    pool = _seeds(value.bad, context) if value.bad else corpus[np.flatnonzero(judged)]
    scores = np.zeros(corpus.shape[0])
    if pool.shape[0] and corpus.shape[0]:
        draw = np.random.default_rng(context.seed)
        count = max(1, min(pool.shape[0], max(good.shape[0], round(value.hard * pool.shape[0]))))
        chosen = np.sort(draw.permutation(pool.shape[0])[:count])
        for _ in range(value.rounds):
            weights, offset = fitted(good, pool[chosen])
            hardest = np.argsort(-(pool @ weights), kind="stable")
            # What looks best of all may well be good: the hard ones come after it.
            skipped = 0 if value.bad else round(value.hard * pool.shape[0])
            chosen = np.sort(np.union1d(chosen, hardest[skipped : skipped + count]))
        scores = _probability(corpus @ weights + offset)
    keeps = np.ones(len(scores), dtype=bool)
    mine = np.flatnonzero(judged)
    order = mine[np.argsort(-scores[mine], kind="stable")]
    keeps[order[round(value.keep * len(mine)) :]] = False
    return {"keeps": keeps, "scores": scores}


def _run(value: Quality, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    keeps = decisions["keeps"][bucket.first : bucket.first + len(bucket.documents)]
    return [
        kept(document) if keep else dropped("low quality")
        for document, keep in zip(bucket.documents, keeps, strict=True)
    ]


STAGE = DataStage(
    name="quality",
    value=Quality,
    scope="corpus",
    help="The documents most like a user's good seeds stay.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    needs=("scipy",),
)
