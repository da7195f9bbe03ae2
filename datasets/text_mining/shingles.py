"""Shingles: hashed n-grams of the words of a text."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np

WORD = re.compile(rb"[\w\x80-\xff]+")
_LARGE = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33))

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def word_hashes(text: str) -> Hashes:
    """A hash for each word, in lower case."""
    words = WORD.findall(text.lower().encode("utf-8", "surrogatepass"))
    return np.fromiter(map(zlib.crc32, words), dtype=np.uint64, count=len(words))


def ngram_hashes(words: Hashes, size: int) -> Hashes:
    """A hash for each run of ``size`` words; of all words where they are fewer."""
    size = max(1, min(size, len(words)))
    count = len(words) - size + 1
    if len(words) == 0:
        return np.empty(0, dtype=np.uint64)
    hashes = np.zeros(count, dtype=np.uint64)
    for start in range(size):
        hashes = hashes * _LARGE + words[start : start + count] + np.uint64(1)
    return mixed(hashes)


def mixed(hashes: Hashes) -> Hashes:
    """Hashes whose every bit depends on every bit (MurmurHash3's finalizer)."""
    first, second, shift = _MIX
    hashes = (hashes ^ (hashes >> shift)) * first
    hashes = (hashes ^ (hashes >> shift)) * second
    return hashes ^ (hashes >> shift)


def shingles(text: str, size: int) -> Hashes:
    """The set of a text's hashed word n-grams, sorted."""
    return np.unique(ngram_hashes(word_hashes(text), size))
