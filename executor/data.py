"""Training text: the standard library's own sources, tokenised to the model's vocabulary.

Nothing is downloaded. A byte-level BPE is trained on the sources and cut to the vocabulary;
tokens and tokenizer are cached, keyed by interpreter version and vocabulary. Which window of
the text a sample is depends on the seed and the sample's number only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..spec.codec import write_atomically
from ..spec.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MIN_VOCAB = 257
TEXT_BYTES = 6_000_000


def cache_dir() -> Path:
    """Where derived data is kept between runs: $XDG_CACHE_HOME/shardwright."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "shardwright"


def source_files() -> list[Path]:
    """The standard library's Python files, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "site-packages", "dist-packages", "idlelib", "__pycache__"}
    found = [p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts)]
    return sorted(found, key=lambda p: p.relative_to(root).as_posix())


def _texts(paths: list[Path], limit_bytes: int) -> Iterator[str]:
    used = 0
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # unreadable file of the installation: the corpus does without it
            continue
        used += len(text)
        yield text
        if used >= limit_bytes:
            return


def load_tokens(vocab: int, data: Path | None = None, tokenizer: Path | None = None) -> np.ndarray:
    """The corpus as token numbers, (tokens,) uint32.

    Args:
        vocab: the model's vocabulary, at least 257.
        data: a text file or a folder of text files instead of the standard library.
        tokenizer: a ``tokenizer.json`` instead of a byte-pair encoding trained here.

    Raises:
        InputError: vocabulary too small, unreadable data, tokenizer larger than the vocabulary.
    """
    if vocab < MIN_VOCAB and tokenizer is None:
        allowed = f"at least {MIN_VOCAB} to run on real text"
        raise InputError("model.vocab", vocab, allowed, MIN_VOCAB)
    paths = source_files() if data is None else _data_files(data)
    key = _cache_key(paths, vocab, tokenizer)
    cached = cache_dir() / f"tokens-{key}.npy"
    if cached.is_file():
        loaded: np.ndarray = np.load(cached, allow_pickle=False)
        return loaded
    tokens = _tokenise(paths, vocab, tokenizer)
    _store(cached, tokens)
    return tokens


def _data_files(data: Path) -> list[Path]:
    if data.is_file():
        return [data]
    files = sorted(p for p in data.rglob("*") if p.is_file()) if data.is_dir() else []
    if not files:
        raise InputError("--data", str(data), "a text file or a folder with text files")
    return files


def _cache_key(paths: list[Path], vocab: int, tokenizer: Path | None) -> str:
    facts = [sys.version, str(vocab), str(TEXT_BYTES), str(tokenizer)]
    facts += [f"{p}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in paths]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _tokenise(paths: list[Path], vocab: int, tokenizer_path: Path | None) -> np.ndarray:
    from tokenizers import Tokenizer

    if tokenizer_path is not None:
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
        if tokenizer.get_vocab_size() > vocab:
            allowed = f"a tokenizer of at most the model's {vocab} tokens"
            raise InputError("--tokenizer", tokenizer.get_vocab_size(), allowed)
    else:
        tokenizer = _train(paths, vocab)
    encoded = tokenizer.encode_batch(list(_texts(paths, TEXT_BYTES)))
    return np.concatenate([np.asarray(e.ids, dtype=np.uint32) for e in encoded])


def _train(paths: list[Path], vocab: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(paths, TEXT_BYTES), trainer)
    return tokenizer


def _store(path: Path, tokens: np.ndarray) -> None:
    import io

    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.save(buffer, tokens, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


class TextBatches:
    """Samples of a token sequence: ``batches(step, sample)`` is (seq + 1,) int64 tokens.

    Windows of ``seq_len`` tokens are visited in an order shuffled by the seed, all of them
    before any comes again.
    """

    def __init__(self, tokens: np.ndarray, seq_len: int, global_batch: int, seed: int) -> None:
        self.windows = (len(tokens) - 1) // seq_len
        if self.windows < 1:
            raise InputError("seq_len", seq_len, f"at most the corpus's {len(tokens) - 1} tokens")
        self.tokens = tokens
        self.seq_len = seq_len
        self.global_batch = global_batch
        self.seed = seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __call__(self, step: int, sample: int) -> Tensor:
        """The ``sample``-th sample of optimizer step ``step``."""
        epoch, place = divmod(step * self.global_batch + sample, self.windows)
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, generator.permutation(self.windows))
        start = int(self._order[1][place]) * self.seq_len
        window = self.tokens[start : start + self.seq_len + 1].astype(np.int64)
        return torch.from_numpy(window)


class RandomBatches:
    """Uniformly random tokens by seed, for models whose vocabulary no text fits."""

    def __init__(self, vocab: int, seq_len: int, global_batch: int, seed: int) -> None:
        self.vocab, self.seq_len = vocab, seq_len
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """The ``sample``-th sample of optimizer step ``step``."""
        number = step * self.global_batch + sample
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        return torch.randint(0, self.vocab, (self.seq_len + 1,), generator=generator)
