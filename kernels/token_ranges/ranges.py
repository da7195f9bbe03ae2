"""Token ranges, checked once on the host so that copies never wait."""

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
        pieces: (start, length) of each nonempty range, in copy order.
        tokens: length of the token axis.
        starts: (ranges,) int64 on the device, each range's first token.
        ends: (ranges,) int64 on the device, each range's end in the copy.
        shifts: (ranges,) int64 on the device, token number minus row number.
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
        starts: (ranges,) integers. On a device the host reads and waits for them.
        lengths: (ranges,) integers, zero allowed.
        tokens: length of the token axis.
        device: of the copying; by default that of ``starts``.

    Raises:
        InputError: shapes that differ, a negative number, a range beyond the tokens.
    """
    if starts.ndim != 1 or starts.shape != lengths.shape:
        description = f"shapes {tuple(starts.shape)} and {tuple(lengths.shape)}"
        raise InputError("starts, lengths", description, "two of one shape (ranges,)")
    pairs = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    for number, (start, length) in enumerate(pairs):
        if min(start, length) < 0 or start + length > tokens:
            description, allowed = f"{start} and {length}", f"a range inside 0 to {tokens} tokens"
            raise InputError(f"starts[{number}], lengths[{number}]", description, allowed)
    pieces = tuple((start, length) for start, length in pairs if length)
    ends = list(accumulate(length for _, length in pieces))
    begins = [end - length for end, (_, length) in zip(ends, pieces, strict=True)]
    shifts = [start - begin for begin, (start, _) in zip(begins, pieces, strict=True)]
    place = starts.device if device is None else torch.device(device)
    columns = ([start for start, _ in pieces], ends, shifts)
    on_device = torch.tensor(columns, dtype=torch.int64).view(3, len(pieces)).to(place)
    return TokenRanges(pieces, tokens, *on_device.unbind(0))


__all__ = ["TokenRanges", "token_ranges"]
