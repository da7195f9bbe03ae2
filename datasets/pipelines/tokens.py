"""Tokens: shards of numbers, with the bounds and domains of documents and the windows' manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..recipes.data_stage import Arrays, Bucket, DataStage, StageContext
from ..recipes.text_document import Outcome, kept
from ..sources.tokenizer import load_tokenizer
from ..text_mining.arrays import all_rows, joined, ragged, texts_array

SHARD_TOKENS = 1 << 24
NARROW = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """No settings: tokenizer and windows are the recipe's."""


def _sketch(value: Any, bucket: Bucket, context: StageContext) -> Arrays:
    tokenizer = load_tokenizer(context.tokenizer, context.folder)
    places = {name: place for place, name in enumerate(context.domains)}
    return {
        **ragged(tokenizer.encode([d.text for d in bucket.documents]), "uint32"),
        "domains": np.array([places[d.domain] for d in bucket.documents], dtype=np.int32),
        "digests": texts_array([d.digest for d in bucket.documents]),
    }


def _decide(value: Any, sketches: Sequence[Arrays], context: StageContext) -> Arrays:
    """Write the shards; documents that follow each other are parted by the end of text."""
    tokenizer = load_tokenizer(context.tokenizer, context.folder)
    lengths = np.concatenate([np.diff(sketch["bounds"]) for sketch in sketches])
    pieces = dict(context.windows) or _stream(lengths)
    size = int(pieces["size"][0])
    total = (int(pieces["window"].max()) + 1) * size if len(pieces["window"]) else 0
    shards = _Shards(context, total, size, tokenizer.vocab, tokenizer.end)
    order = np.argsort(pieces["document"], kind="stable")
    bounds = np.searchsorted(pieces["document"][order], np.arange(len(lengths) + 1))
    for row, ids in enumerate(all_rows(sketches)):
        text = np.append(ids, np.uint32(tokenizer.end))
        for piece in order[bounds[row] : bounds[row + 1]].tolist():
            start, length = int(pieces["start"][piece]), int(pieces["length"][piece])
            place = int(pieces["window"][piece]) * size + int(pieces["offset"][piece])
            shards.write(place, text[start : start + length])
    shards.close()
    documents = {
        "tokens": lengths,
        "domains": joined(sketches, "domains"),
        "digests": joined(sketches, "digests"),
        **{name: pieces[name] for name in ("window", "offset", "document", "start", "length")},
    }
    if context.outputs is not None:
        np.savez(context.outputs / "documents.npz", allow_pickle=False, **documents)
    ends = np.array([tokenizer.end, tokenizer.vocab, total, size])
    return {"facts": ends, "used": np.array([int(pieces["length"].sum())])}


def _stream(lengths: Any) -> Arrays:
    """Documents end to end in one window that is as long as they all are."""
    with_end = lengths + 1
    offsets = np.cumsum(with_end) - with_end
    zeros = np.zeros(len(lengths), dtype=np.int64)
    return {
        "window": zeros,
        "offset": offsets,
        "document": np.arange(len(lengths)),
        "start": zeros,
        "length": with_end,
        "size": np.array([int(with_end.sum())]),
    }


class _Shards:
    """Token files of whole windows, written in any order."""

    def __init__(self, context: StageContext, total: int, size: int, vocab: int, end: int) -> None:
        self._tokens = max(1, SHARD_TOKENS // max(1, size)) * size if size < total else SHARD_TOKENS
        self._files = []
        dtype = np.uint16 if vocab <= NARROW else np.uint32
        if context.outputs is None:
            return
        for number, start in enumerate(range(0, total, self._tokens)):
            length = min(self._tokens, total - start)
            path = context.outputs / f"tokens-{number:05d}.npy"
            file = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(length,))
            file[:] = end
            self._files.append(file)

    def write(self, place: int, tokens: Any) -> None:
        """Put tokens at a place of the whole."""
        while len(tokens) and self._files:
            shard, offset = divmod(place, self._tokens)
            part = tokens[: self._tokens - offset]
            self._files[shard][offset : offset + len(part)] = part
            place, tokens = place + len(part), tokens[len(part) :]

    def close(self) -> None:
        for file in self._files:
            file.flush()
        self._files = []


def _run(value: Any, bucket: Bucket, decisions: Arrays, context: StageContext) -> list[Outcome]:
    return [kept(document) for document in bucket.documents]


def _facts(value: Any, decisions: Arrays) -> dict[str, Any]:
    end, vocab, total, size = decisions["facts"].tolist()
    used = int(decisions["used"][0])
    return {"end": end, "vocab": vocab, "tokens": total, "window": size, "padding": total - used}


STAGE = DataStage(
    name="tokens",
    value=Tokens,
    scope="corpus",
    help="Texts become shards of token numbers.",
    run=_run,
    sketch=_sketch,
    decide=_decide,
    facts=_facts,
)
