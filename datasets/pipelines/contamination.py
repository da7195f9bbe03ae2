"""Contamination: documents with n-grams of the user's benchmarks are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, dropped, kept
from ..text_mining.shingles import Hashes, ngram_hashes, shingles, word_hashes
from ..text_mining.user_texts import user_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    """Settings.

    ``benchmarks``: files with their texts. A document with at least ``matches`` of their runs of
    ``ngram`` words is dropped (13 in GPT-3; Brown et al., arXiv:2005.14165, C). Shorter texts count
    as a whole.
    """

    benchmarks: Annotated[tuple[str, ...], Field(min_length=1)]
    ngram: Annotated[int, Field(ge=1, le=100)] = 13
    matches: Annotated[int, Field(ge=1)] = 1
    text: str = "text"


@lru_cache(maxsize=2)
def _known(value: Contamination, folder: Path) -> dict[int, Hashes]:
    """N-grams of the benchmarks, by their number of words."""
    found: dict[int, list[Hashes]] = {}
    for text in user_texts(value.benchmarks, folder, "contamination", value.text):
        words = word_hashes(text)
        size = min(value.ngram, len(words))
        if size:
            found.setdefault(size, []).append(ngram_hashes(words, size))
    return {size: np.unique(np.concatenate(parts)) for size, parts in found.items()}


def matches(known: dict[int, Hashes], text: str) -> int:
    """N-grams of a text that are known."""
    total = 0
    for size, hashes in known.items():
        mine = shingles(text, size)
        total += len(np.intersect1d(mine, hashes, assume_unique=True))
    return total


def _run(
    value: Contamination, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    known = _known(value, context.folder)
    return [
        dropped("text of a benchmark")
        if matches(known, document.text) >= value.matches
        else kept(document)
        for document in bucket.documents
    ]


STAGE = DataStage(
    name="contamination",
    value=Contamination,
    scope="document",
    help="Documents with n-grams of the user's benchmarks are dropped.",
    run=_run,
)
