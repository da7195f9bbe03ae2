"""Training text: the standard library's sources, tokenized to the model's vocabulary.

No download: a byte-level BPE is trained on the sources and cut to the vocabulary; it and the tokens
are cached by files, interpreter version and vocabulary. A window depends only on seed and sample
number.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...spec.codec import write_atomically
from ...spec.errors import InputError
from ...spec.files import open_file
from .token_files import is_token_file, load_token_file

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MIN_VOCAB = 257
END_OF_TEXT = "<|endoftext|>"
TEXT_CHARACTERS = 6_000_000
"""Characters read of the standard library, and of any text to train a tokenizer."""
PIECE_CHARACTERS = 1 << 18
PIECES_AT_ONCE = 32


def cache_dir() -> Path:
    """Cache of derived data: $XDG_CACHE_HOME/shardwright."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "shardwright"


def source_files() -> list[Path]:
    """The standard library's Python files, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "site-packages", "dist-packages", "idlelib", "__pycache__"}
    files = [p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts)]
    return sorted(files, key=lambda p: p.relative_to(root).as_posix())


def _texts(paths: list[Path], limit: int | None) -> Iterator[str]:
    """Texts in pieces of whole lines, about ``limit`` characters in all."""
    used = 0
    for path in paths:
        try:
            with (
                open_file(path, "a text file") as source,
                io.TextIOWrapper(source, encoding="utf-8", errors="replace") as file,
            ):
                while lines := file.readlines(PIECE_CHARACTERS):
                    yield "".join(lines)
                    used += sum(len(line) for line in lines)
                    if limit is not None and used >= limit:
                        return
        except (InputError, OSError):  # unreadable: the corpus does without it
            continue


def load_tokens(vocab: int, data: Path | None = None, tokenizer: Path | None = None) -> np.ndarray:
    """The corpus as (tokens,) uint32 token numbers, cached on disk.

    ``data``: a text file, a folder of them or a token file; None for the standard library.
    ``tokenizer``: a ``tokenizer.json`` instead of a BPE trained here. ``vocab`` is at least 257.

    Raises:
        InputError: vocabulary too small, unreadable data, tokenizer larger than the vocabulary.
    """
    if data is not None and is_token_file(data):
        if tokenizer is not None:
            allowed = "none: the numbers in --data are tokens already"
            raise InputError("--tokenizer", str(tokenizer), allowed)
        return load_token_file(data, vocab)
    if vocab < MIN_VOCAB and tokenizer is None:
        allowed = f"at least {MIN_VOCAB} to run on real text"
        raise InputError("model.vocab", vocab, allowed, MIN_VOCAB)
    if tokenizer is not None and not tokenizer.is_file():
        raise InputError("--tokenizer", str(tokenizer), "a tokenizer.json file")
    paths = source_files() if data is None else _data_files(data)
    limit = TEXT_CHARACTERS if data is None else None
    cached = cache_dir() / f"tokens-{_cache_key(paths, vocab, tokenizer)}.npy"
    with _one_at_a_time(cached):
        if not cached.is_file():
            made = _train(paths, vocab) if tokenizer is None else _read(tokenizer, vocab)
            tokens = _tokenize(paths, limit, made)
            if tokenizer is None:
                _store(_tokenizer_file(cached), made.to_str().encode())
            if not _store(cached, _npy(tokens)):
                return tokens
    loaded: np.ndarray = np.load(cached, mmap_mode="r", allow_pickle=False)
    return loaded


def trained_tokenizer(vocab: int, data: Path | None = None) -> str:
    """The ``tokenizer.json`` of a BPE trained here, as :func:`load_tokens` has it.

    From the cache; without one, it is trained again from the same text.
    """
    paths = source_files() if data is None else _data_files(data)
    cached = _tokenizer_file(cache_dir() / f"tokens-{_cache_key(paths, vocab, None)}.npy")
    try:
        return cached.read_text(encoding="utf-8")
    except OSError:
        text: str = _train(paths, vocab).to_str()
        return text


def _tokenizer_file(tokens: Path) -> Path:
    return tokens.with_name(f"{tokens.stem}-tokenizer.json")


@contextmanager
def _one_at_a_time(cached: Path) -> Iterator[None]:
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        lock = cached.with_suffix(".lock").open("w")
    except OSError:  # nowhere to keep it: every rank makes its own
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _data_files(data: Path) -> list[Path]:
    if data.is_file():
        return [data]
    files = sorted(p for p in data.rglob("*") if p.is_file()) if data.is_dir() else []
    if not files:
        raise InputError("--data", str(data), "a text file or a folder with text files")
    return files


def _cache_key(paths: list[Path], vocab: int, tokenizer: Path | None) -> str:
    facts = [sys.version, str(vocab), str(TEXT_CHARACTERS)]
    files = paths if tokenizer is None else [tokenizer, *paths]
    facts += [f"{p}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _tokenize(paths: list[Path], limit: int | None, tokenizer: Tokenizer) -> np.ndarray:
    parts = [
        np.asarray(encoded.ids, dtype=np.uint32)
        for pieces in _batched(_texts(paths, limit), PIECES_AT_ONCE)
        for encoded in tokenizer.encode_batch(pieces)
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)


def _batched(pieces: Iterator[str], count: int) -> Iterator[list[str]]:
    while batch := list(islice(pieces, count)):
        yield batch


def _read(path: Path, vocab: int) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        reason = " ".join(str(error).split())
        raise InputError("--tokenizer", str(path), f"a tokenizer.json ({reason})") from None
    if tokenizer.get_vocab_size() > vocab:
        allowed = f"a tokenizer of at most the model's {vocab} tokens"
        raise InputError("--tokenizer", tokenizer.get_vocab_size(), allowed)
    return tokenizer


def _train(paths: list[Path], vocab: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(paths, TEXT_CHARACTERS), trainer)
    return tokenizer


def _npy(tokens: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, tokens, allow_pickle=False)
    return buffer.getvalue()


def _store(path: Path, content: bytes) -> bool:
    try:
        write_atomically(path, content)
    except InputError:  # a full or read-only disk costs the next run some seconds, no more
        return False
    return True


class TextBatches:
    """Samples of a token sequence, (seq + 1,) int64 tokens each.

    Windows of ``seq_len`` tokens come in an order shuffled by seed, each once per epoch.
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
        """Sample ``sample`` of optimizer step ``step``."""
        start = self.position(step, sample) * self.seq_len
        window = self.tokens[start : start + self.seq_len + 1].astype(np.int64)
        return torch.from_numpy(window)

    def position(self, step: int, sample: int) -> int:
        """Number of the window that a sample is."""
        epoch, position = divmod(step * self.global_batch + sample, self.windows)
        if self._order[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            self._order = (epoch, generator.permutation(self.windows))
        return int(self._order[1][position])


class RandomBatches:
    """Uniformly random tokens by seed, for vocabularies that no text fits."""

    def __init__(self, vocab: int, seq_len: int, global_batch: int, seed: int) -> None:
        self.vocab, self.seq_len = vocab, seq_len
        self.global_batch, self.seed = global_batch, seed

    def __call__(self, step: int, sample: int) -> Tensor:
        """Sample ``sample`` of optimizer step ``step``."""
        number = step * self.global_batch + sample
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        return torch.randint(0, self.vocab, (self.seq_len + 1,), generator=generator)
