"""Exact duplicates: of equal texts one stays, over all sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept
from ..text_mining.arrays import joined, texts_array


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDuplicates:
    """No settings: texts are equal or not."""


def _sketch(value: Any, bucket: Bucket, context: StageContext) -> Arrays:
    return {"digests": texts_array([document.digest for document in bucket.documents])}


def _decide(value: Any, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    """The first of equal digests, in the order of the corpus."""
    digests = joined(sketches, "digests")
    keeps = np.zeros(len(digests), dtype=bool)
    keeps[np.unique(digests, return_index=True)[1]] = True
    return {"keeps": keeps}


def _run(value: Any, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    keeps = decisions["keeps"][bucket.first : bucket.first + len(bucket.documents)]
    return [
        kept(document) if keep else dropped("same text as another")
        for document, keep in zip(bucket.documents, keeps, strict=True)
    ]


STAGE = DataStage(
    name="exact_duplicates",
    value=ExactDuplicates,
    scope="corpus",
    help="Of equal texts one stays, over all sources.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
)
