"""Sentences and lines of a text: pieces that join to it again."""

from __future__ import annotations

import re
import unicodedata

PIECE = re.compile(r"[^\n]*?(?:\n|[.!?]+ |[。！？])|[^\n]+\Z")
"""The shortest text with a line's or sentence's end. Ends lie inside pieces, so removing some
leaves the others as they are."""
NOT_LETTERS = re.compile(r"[\W\d_]+")


def pieces(text: str) -> list[str]:
    """Sentences and lines; joined, they are the text."""
    return PIECE.findall(text)


def normalized(piece: str) -> str:
    """A piece without case, punctuation, spacing and numbers."""
    if not piece.isascii():
        piece = unicodedata.normalize("NFKC", piece).casefold()
    return NOT_LETTERS.sub(" ", piece.lower()).strip()
