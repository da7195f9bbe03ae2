"""Sentences and lines of a text: pieces that join to it again."""

from __future__ import annotations

import re
import unicodedata

PIECE = re.compile(r"[^\n]*?(?:\n|[.!?]+ |[。！？])|[^\n]+\Z")
"""The shortest text with a line's or sentence's end. Ends lie inside pieces, so removing some leaves
the others as they are."""
DIGITS = re.compile(r"\d+")
NOT_WORD = re.compile(r"[\W_]+")


def pieces(text: str) -> list[str]:
    """Sentences and lines; joined, they are the text."""
    return PIECE.findall(text)


def normalized(piece: str) -> str:
    """A piece without case, punctuation, spacing and the values of numbers."""
    plain = unicodedata.normalize("NFKC", piece).casefold()
    return NOT_WORD.sub(" ", DIGITS.sub("0", plain)).strip()
