"""Lengths of the documents that share a sequence, each attending to itself alone.

A run on prepared data masks between documents where its workload names their lengths. Core
attention then takes the sum of their squares, not the square of the sequence (Krell et al., 2021,
section 3.2); all other work is that of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..errors import InputError
from ..limits import MAX_SEQ_LEN

ONE = "one"
"""The word for one document a sequence."""
Amount = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRow:
    """Documents of up to ``longest`` tokens: how many, their tokens, the sum of their squares."""

    longest: Amount
    documents: Amount
    tokens: Amount
    squares: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLengths:
    """A histogram of documents as sequences of ``window`` tokens hold them.

    ``recipe``: hash of the data's recipe. A document cut by the end of a sequence is two, and
    padding is one.
    """

    recipe: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    window: Annotated[int, Field(ge=1, le=MAX_SEQ_LEN)]
    rows: Annotated[tuple[LengthRow, ...], Field(min_length=1, max_length=64)]

    @property
    def documents(self) -> int:
        """All documents."""
        return sum(row.documents for row in self.rows)

    def attended(self, seq_len: int) -> float:
        """Mean tokens of a token's own document, in sequences of ``seq_len`` tokens.

        Exact for the histogram's window. In shorter sequences, documents of a row that are longer
        count as equally long, cut from their first token on; longer sequences hold the same ones.
        """
        squares = sum(_squares(row, seq_len) for row in self.rows)
        return squares / sum(row.tokens for row in self.rows)


def _squares(row: LengthRow, seq_len: int) -> float:
    if row.longest <= seq_len:
        return row.squares
    mean = row.tokens / row.documents
    whole, rest = divmod(mean, seq_len)
    return float(row.documents * (whole * seq_len**2 + rest**2))


def length_rows(lengths: Iterable[int]) -> tuple[LengthRow, ...]:
    """The histogram of these lengths, tokens each; none is 0."""
    found: dict[int, list[int]] = {}
    for length in lengths:
        bound = _bound(length)
        row = found.setdefault(bound, [0, 0, 0])
        for place, amount in enumerate((1, length, length * length)):
            row[place] += amount
    return tuple(
        LengthRow(longest=bound, documents=row[0], tokens=row[1], squares=row[2])
        for bound, row in sorted(found.items())
    )


def _bound(length: int) -> int:
    """The least step that holds a length: powers of 2, and three halves of them."""
    power = 1 << max(0, length - 1).bit_length()
    middle = power * 3 // 4
    return middle if length <= middle else power


def lengths_violation(lengths: DocumentLengths | None) -> str | None:
    """Reason why a histogram is none, or None."""
    if lengths is None:
        return None
    bounds = [row.longest for row in lengths.rows]
    if bounds != sorted(set(bounds)):
        return f"rows of lengths rise, unlike {bounds[:4]}"
    for row in lengths.rows:
        least = row.tokens * row.tokens
        if not least <= row.squares * row.documents or row.squares > row.longest * row.tokens:
            return f"squares of documents of up to {row.longest} tokens, not {row.squares}"
    return None


def lengths_text(lengths: DocumentLengths | None, seq_len: int) -> str:
    """A summary for readers: ``one`` document a sequence, or their mean."""
    if lengths is None:
        return "one document a sequence"
    mean = sum(row.tokens for row in lengths.rows) / lengths.documents
    seen = lengths.attended(seq_len)
    recipe = lengths.recipe.removeprefix("sha256:")[:8]
    return f"documents of {mean:.0f} tokens ({seen:.0f} seen by a token), recipe {recipe}"


def require_documents(lengths: DocumentLengths | None, attention: str) -> None:
    """Refuse documents' lengths where attention keeps whole score matrices.

    Raises:
        InputError: unfused attention.
    """
    if lengths is not None and attention != "flash":
        allowed = "flash: documents' lengths are priced and run for it alone"
        raise InputError("--attention", attention, allowed, "flash")


__all__ = [
    "ONE",
    "DocumentLengths",
    "LengthRow",
    "length_rows",
    "lengths_text",
    "lengths_violation",
    "require_documents",
]
