"""Token files: text tokenized before.

``.npy`` states its integer width. ``.bin`` is bare little-endian integers as GPT data tools write
them: uint16 where the vocabulary fits, else uint32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...spec.errors import InputError

SUFFIXES = (".npy", ".bin")
NARROW_VOCAB = 1 << 16
CHECKED_AT_ONCE = 1 << 24

Tokens = np.ndarray[Any, np.dtype[Any]]


def is_token_file(path: Path | None) -> bool:
    """True if a ``--data`` path holds token numbers, not text."""
    return path is not None and path.suffix in SUFFIXES and path.is_file()


def load_token_file(path: Path, vocab: int) -> Tokens:
    """Tokens of a file, (tokens,), memory-mapped.

    ``path`` ends in one of :data:`SUFFIXES`; every number is below ``vocab``.

    Raises:
        InputError: no such numbers, or one outside the vocabulary.
    """
    tokens = _numpy_file(path) if path.suffix == ".npy" else _bare_file(path, vocab)
    for start in range(0, len(tokens), CHECKED_AT_ONCE):
        part = tokens[start : start + CHECKED_AT_ONCE]
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= vocab:
            wrong = low if low < 0 else high
            raise InputError("--data", f"token {wrong}", f"0 to {vocab - 1}, the model's tokens")
    return tokens


def _numpy_file(path: Path) -> Tokens:
    allowed = "a .npy file of one dimension of whole numbers"
    try:
        tokens: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError("--data", str(path), f"{allowed} ({reason})") from None
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InputError("--data", f"{tokens.dtype} of shape {tokens.shape}", allowed)
    return tokens


def _bare_file(path: Path, vocab: int) -> Tokens:
    width = np.dtype("<u2" if vocab <= NARROW_VOCAB else "<u4")
    size_bytes = path.stat().st_size
    if not size_bytes or size_bytes % width.itemsize:
        allowed = f"{width.name} numbers: a multiple of {width.itemsize} bytes"
        raise InputError("--data", f"{path} of {size_bytes} bytes", allowed)
    return np.memmap(path, dtype=width, mode="r")
