"""Tokenizers of recipes: bytes, or a tokenizer.json."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...spec.errors import InputError
from ..recipes.recipe import BYTES

END_TEXTS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]")
"""Spellings of the end of a text, as usual tokenizers have it."""
Ids = np.ndarray[Any, np.dtype[np.uint32]]


class TextTokenizer(Protocol):
    """Text to numbers below ``vocab``; ``end`` parts documents."""

    vocab: int
    end: int

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Numbers of each text."""


class ByteTokenizer:
    """A token a byte of UTF-8, and one more for the end of a text."""

    vocab, end = 257, 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Bytes of each text."""
        encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
        return [np.frombuffer(each, dtype=np.uint8).astype(np.uint32) for each in encoded]


class FileTokenizer:
    """The tokenizer of a ``tokenizer.json``.

    Raises:
        InputError: no such file, or no end of a text in its vocabulary.
    """

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("tokenizers") is None:
            allowed = "bytes, or with the extra: pip install 'shardwright[run]'"
            raise InputError("tokenizer", str(path), allowed, BYTES)
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            reason = " ".join(str(error).split())
            raise InputError("tokenizer", str(path), f"a tokenizer.json ({reason})") from None
        numbers = [self._tokenizer.token_to_id(text) for text in END_TEXTS]
        known = [number for number in numbers if number is not None]
        if not known:
            allowed = f"a tokenizer with one of {', '.join(END_TEXTS)}"
            raise InputError("tokenizer", str(path), allowed)
        self.vocab, self.end = int(self._tokenizer.get_vocab_size()), int(known[0])

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Numbers of each text, without special tokens."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(each.ids, dtype=np.uint32) for each in encoded]


@lru_cache(maxsize=4)
def load_tokenizer(name: str, folder: Path) -> TextTokenizer:
    """The tokenizer that a recipe in ``folder`` names."""
    return ByteTokenizer() if name == BYTES else FileTokenizer(folder / name)
