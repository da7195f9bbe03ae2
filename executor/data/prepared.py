"""Prepared data (``plan data``): token shards and windows, as samples of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...datasets.preparation.document_lengths import document_ends
from ...datasets.preparation.result import DATA, read_data
from ...spec.errors import InputError
from ...spec.workload.document_lengths import DocumentLengths
from .text import TextBatches

Tokens = np.ndarray[Any, np.dtype[Any]]


def is_prepared(path: Path | None) -> bool:
    """True if a ``--data`` path is a folder that ``plan data`` has finished."""
    return path is not None and (path / DATA).is_file()


def recipe_hash(path: Path | None) -> str | None:
    """Hash of the recipe of prepared data; None for other data."""
    return str(read_data(path)["recipe_hash"]) if path is not None and is_prepared(path) else None


class ShardedTokens:
    """Memory-mapped shards of tokens as one row of numbers."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        try:
            self._shards = [np.load(folder / n, mmap_mode="r", allow_pickle=False) for n in names]
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError("--data", str(folder), f"all its shards ({reason})") from None
        self._ends = np.cumsum([len(shard) for shard in self._shards])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, places: slice) -> Tokens:
        start, end, _ = places.indices(len(self))
        parts = []
        while start < end:
            shard = int(np.searchsorted(self._ends, start, side="right"))
            first = int(self._ends[shard]) - len(self._shards[shard])
            part = self._shards[shard][start - first : end - first]
            parts.append(np.asarray(part, dtype=np.int64))
            start += len(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


class PreparedBatches(TextBatches):
    """Samples of windows, (seq + 1,) tokens each; after a window's last one comes the text's end.

    Which window a sample is depends on seed and sample number alone, so any plan resumes a run.
    """

    def __init__(
        self, tokens: ShardedTokens, seq_len: int, global_batch: int, seed: int, end: int
    ) -> None:
        super().__init__(_Ended(tokens, end), seq_len, global_batch, seed)  # type: ignore[arg-type]
        self.size, self.end = seq_len, end
        self.ends: Tokens | None = None
        """Where documents end in the tokens, where they do not see one another."""

    def documents(self, step: int, sample: int) -> tuple[int, ...]:
        """Where a sample's documents end: rising, the last at ``seq_len``; parts count as whole.

        Raises:
            RuntimeError: samples are one document each.
        """
        if self.ends is None:
            raise RuntimeError("these samples are one document each")
        start = self.position(step, sample) * self.seq_len
        first, last = np.searchsorted(self.ends, (start, start + self.seq_len), side="right")
        inner = self.ends[first:last] - start
        return (*(int(end) for end in inner if end < self.seq_len), self.seq_len)

    def limit(self, window: int) -> PreparedBatches:
        """The same, no sample of which reads beyond its window."""
        self.size = window
        return self

    def __call__(self, step: int, sample: int) -> Tensor:
        """Sample ``sample`` of optimizer step ``step``."""
        record = super().__call__(step, sample)
        position = self.position(step, sample)
        if (position + 1) * self.seq_len % self.size == 0:
            record[-1] = self.end
        return record


class _Ended:
    """Tokens with the end of a text behind them."""

    def __init__(self, tokens: ShardedTokens, end: int) -> None:
        self._tokens, self._end = tokens, end

    def __len__(self) -> int:
        return len(self._tokens) + 1

    def __getitem__(self, places: slice) -> Tokens:
        found = self._tokens[places]
        start, end, _ = places.indices(len(self))
        short = end - start - len(found)
        return np.append(found, np.full(short, self._end, dtype=np.int64))


def prepared_batches(
    folder: Path,
    vocab: int,
    seq_len: int,
    global_batch: int,
    seed: int,
    lengths: DocumentLengths | None = None,
) -> PreparedBatches:
    """Samples of prepared data for a model of ``vocab`` tokens.

    ``lengths``: of a workload whose documents do not see one another.

    Raises:
        InputError: tokens that the model has not, a sequence that does not divide the windows, or
            lengths of another recipe.
    """
    document = read_data(folder)
    if lengths is not None and lengths.recipe != document["recipe_hash"]:
        given = f"{folder} of recipe {document['recipe_hash']}"
        raise InputError("--data", given, f"data of the plan's recipe {lengths.recipe}")
    facts = document["tokenizer"]
    if facts["vocab"] > vocab:
        allowed = f"data of a tokenizer of at most the model's {vocab} tokens"
        raise InputError("--data", f"{folder} of {facts['vocab']} tokens", allowed)
    names = sorted(name for name in document["files"] if name.startswith("tokens-"))
    tokens = ShardedTokens(folder, names)
    window = facts["window"]
    if len(tokens) < seq_len:
        raise InputError("seq_len", seq_len, f"at most the data's {len(tokens)} tokens")
    batches = PreparedBatches(tokens, seq_len, global_batch, seed, facts["end"])
    if lengths is not None:
        batches.ends = document_ends(folder, window)
    if document["recipe"].get("windows") is None:
        return batches.limit(len(tokens) + 1)
    if window % seq_len:
        allowed = f"a divisor of the data's windows of {window} tokens"
        raise InputError("--seq-len", seq_len, allowed, window)
    return batches.limit(window)


__all__ = ["PreparedBatches", "ShardedTokens", "is_prepared", "prepared_batches", "recipe_hash"]
