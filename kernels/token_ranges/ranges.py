"""Ranges of tokens: checked once, on the host, so that copying them never waits for a device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...spec.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class TokenRanges:
    """Token ranges to copy, in order; made by :func:`token_ranges`.

    Attributes:
        pieces: (start, length) of each range, in the order of the copy; empty ones are left out.
        tokens: how many there are to take from.
        starts: (ranges,) int64 on the device, the first token of each.
        ends: (ranges,) int64 on the device, where each ends in the copy.
        shifts: (ranges,) int64 on the device, what a row of the copy lacks to its token's number.
    """

    pieces: tuple[tuple[int, int], ...]
    tokens: int
    starts: Tensor
    ends: Tensor
    shifts: Tensor

    @property
    def total(self) -> int:
        """Rows of the copy."""
        return sum(length for _, length in self.pieces)

    def overlap(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Two ranges that share a token, if any do."""
        for first, second in pairwise(sorted(self.pieces)):
            if first[0] + first[1] > second[0]:
                return first, second
        return None


def token_ranges(
    starts: Tensor, lengths: Tensor, tokens: int, device: torch.device | str | None = None
) -> TokenRanges:
    """Check ranges and lay them out for copying.

    Args:
        starts: (ranges,) integers. On a device they are read by the host, which waits for them.
        lengths: (ranges,) integers, zero allowed.
        tokens: how many there are to take from.
        device: where the copying is done; that of ``starts`` if not given.

    Raises:
        InputError: shapes that differ, a negative number, a range beyond the tokens.
    """
    if starts.ndim != 1 or starts.shape != lengths.shape:
        given = f"shapes {tuple(starts.shape)} and {tuple(lengths.shape)}"
        raise InputError("starts, lengths", given, "two of one shape (ranges,)")
    pairs = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    for number, (start, length) in enumerate(pairs):
        if min(start, length) < 0 or start + length > tokens:
            given, allowed = f"{start} and {length}", f"a range inside 0 to {tokens} tokens"
            raise InputError(f"starts[{number}], lengths[{number}]", given, allowed)
    pieces = tuple((start, length) for start, length in pairs if length)
    ends = list(accumulate(length for _, length in pieces))
    begins = [end - length for end, (_, length) in zip(ends, pieces, strict=True)]
    shifts = [start - begin for begin, (start, _) in zip(begins, pieces, strict=True)]
    place = starts.device if device is None else torch.device(device)
    columns = ([start for start, _ in pieces], ends, shifts)
    on_device = torch.tensor(columns, dtype=torch.int64).view(3, len(pieces)).to(place)
    return TokenRanges(pieces, tokens, *on_device.unbind(0))


__all__ = ["TokenRanges", "token_ranges"]
