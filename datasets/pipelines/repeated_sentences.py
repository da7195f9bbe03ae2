"""Repeated sentences: what stands in many documents is cut from all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, TextDocument, kept
from ..text_mining.pieces import normalized, pieces

CUT = "sentences that many documents have"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedSentences:
    """Settings.

    A sentence of at least ``words`` words that at least ``documents`` have, whatever its case,
    numbers and punctuation, is cut. ``but``: domains that are left alone.
    """

    documents: Annotated[int, Field(ge=2)] = 20
    words: Annotated[int, Field(ge=1)] = 4
    but: tuple[str, ...] = ("code", "verse")


def _hash(plain: str) -> int:
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _hashes(value: RepeatedSentences, document: TextDocument) -> list[tuple[str, int | None]]:
    """Pieces, with a hash where they are long enough."""
    found: list[tuple[str, int | None]] = []
    for piece in pieces(document.text):
        plain = normalized(piece) if len(piece) >= 2 * value.words else ""
        is_long = plain.count(" ") >= value.words - 1 and bool(plain)
        found.append((piece, _hash(plain) if is_long else None))
    return found


def _sketch(value: RepeatedSentences, bucket: Bucket, context: StageContext) -> Arrays:
    hashes: list[int] = []
    for document in bucket.documents:
        if document.domain not in value.but:
            hashes += {each for _, each in _hashes(value, document) if each is not None}
    found, counts = np.unique(np.array(hashes, dtype=np.uint64), return_counts=True)
    return {"hashes": found, "counts": counts.astype(np.int64)}


def _decide(value: RepeatedSentences, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    hashes = np.concatenate([sketch["hashes"] for sketch in sketches])
    counts = np.concatenate([sketch["counts"] for sketch in sketches])
    found, places = np.unique(hashes, return_inverse=True)
    totals = np.zeros(len(found), dtype=np.int64)
    np.add.at(totals, places, counts)
    return {"repeated": found[totals >= value.documents]}


def _run(
    value: RepeatedSentences, bucket: Bucket, decisions: Arrays, context: StageContext
) -> list[Outcome]:
    repeated = set(decisions["repeated"].tolist())
    return [_outcome(value, document, repeated) for document in bucket.documents]


def _outcome(value: RepeatedSentences, document: TextDocument, repeated: set[int]) -> Outcome:
    if document.domain in value.but or not repeated:
        return kept(document)
    found = _hashes(value, document)
    left = [piece for piece, each in found if each is None or each not in repeated]
    if len(left) == len(found):
        return kept(document)
    text = "".join(left)
    return Outcome(text if text.strip() else None, CUT)


def _facts(value: RepeatedSentences, decisions: Arrays) -> dict[str, Any]:
    return {"sentences": len(decisions["repeated"])}


STAGE = DataStage(
    name="repeated_sentences",
    value=RepeatedSentences,
    scope="corpus",
    help="Sentences that many documents have are cut.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    facts=_facts,
)
