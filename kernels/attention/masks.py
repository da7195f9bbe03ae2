"""Causal attention masks by name, comparable as values.

A mask yields a function of (sample, head, query, key) index tensors, elementwise only, so that one
definition serves a compiled kernel, its map of empty blocks, and a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...spec.errors import InputError

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(sample, head, query, key) to whether the query sees the key; they broadcast."""


@dataclass(frozen=True, slots=True)
class CausalMask:
    """Causal mask: a query sees itself and every earlier key."""

    kind: ClassVar[str] = "causal"
    per_sample: ClassVar[bool] = False

    def check(self, batch: int, seq: int) -> None:
        """Fits any shape."""

    def function(self, device: torch.device) -> MaskFunction:
        """See :data:`MaskFunction`."""
        return _causal


def _causal(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


@dataclass(frozen=True, slots=True)
class SlidingWindowMask:
    """Sliding window: the query's own key and ``window - 1`` before it.

    Source: Beltagy et al., 2020.

    Raises:
        InputError: the window holds no key.
    """

    window: int
    kind: ClassVar[str] = "sliding_window"
    per_sample: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InputError("window", self.window, "1 key or more", 1)

    def check(self, batch: int, seq: int) -> None:
        """Fits any shape."""

    def function(self, device: torch.device) -> MaskFunction:
        """See :data:`MaskFunction`."""
        window = self.window

        def sees(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (query - key < window)

        return sees


@dataclass(frozen=True, slots=True)
class DocumentMask:
    """Document mask: the query's own and earlier keys of its document.

    Args:
        lengths: one row per sample: tokens of each document in order, none empty; each row adds up
            to the sequence.

    Raises:
        InputError: a document has no token.
    """

    lengths: tuple[tuple[int, ...], ...]
    kind: ClassVar[str] = "document"
    per_sample: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if any(length < 1 for row in self.lengths for length in row):
            raise InputError("lengths", self.lengths, "documents of 1 token or more")

    def check(self, batch: int, seq: int) -> None:
        """Refuse shapes that the lengths do not fill.

        Raises:
            InputError: a row does not add up, or rows and samples differ.
        """
        totals = [sum(row) for row in self.lengths]
        if totals != [seq] * batch:
            raise InputError("lengths", totals, f"{batch} rows that add up to {seq} tokens")

    def function(self, device: torch.device) -> MaskFunction:
        """See :data:`MaskFunction`."""
        rows = [
            torch.repeat_interleave(torch.arange(len(row)), torch.tensor(row))
            for row in self.lengths
        ]
        documents = torch.stack(rows).to(device)

        def sees(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (documents[sample, query] == documents[sample, key])

        return sees


Mask = CausalMask | SlidingWindowMask | DocumentMask


MOST_AT_ONCE = 1 << 26
"""Pairs of a query and a key for which a mask is worked out at a time, a byte or a few each."""


def visible(mask: Mask, batch: int, seq: int, device: torch.device) -> Tensor:
    """Mask table, (batch or 1, 1, seq, seq) bool, true if seen."""
    place = torch.arange(seq, device=device)
    return _visibility(mask, batch, device)(place, place)


def visible_in_blocks(mask: Mask, batch: int, seq: int, device: torch.device, block: int) -> Tensor:
    """Seen pairs per table block, (batch or 1, 1, blocks, blocks).

    The last blocks overhang the sequence; nothing is seen there. A few block rows are computed at a
    time, so that the whole table never exists.
    """
    blocks = -(-seq // block)
    sees = _visibility(mask, batch, device)
    keys = torch.arange(blocks * block, device=device)
    samples = batch if mask.per_sample else 1
    rows = max(1, MOST_AT_ONCE // (samples * block * len(keys))) * block
    counts = []
    for queries in keys.split(rows):  # type: ignore[no-untyped-call]
        inside = (queries < seq).view(-1, 1) & (keys < seq)
        table = sees(queries.clamp(max=seq - 1), keys.clamp(max=seq - 1)) & inside
        split = table.view(samples, 1, -1, block, blocks, block)
        counts.append(split.sum((3, 5)))
    return torch.cat(counts, 2)


def _visibility(mask: Mask, batch: int, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """Mask tables (batch or 1, 1, queries, keys) for any index pairs."""
    function = mask.function(device)
    samples = torch.arange(batch if mask.per_sample else 1, device=device).view(-1, 1, 1, 1)
    head = torch.zeros_like(samples)

    def table(queries: Tensor, keys: Tensor) -> Tensor:
        visibility = function(samples, head, queries.view(-1, 1), keys)
        return visibility.expand(len(samples), 1, len(queries), len(keys))

    return table


__all__ = [
    "CausalMask",
    "DocumentMask",
    "Mask",
    "MaskFunction",
    "SlidingWindowMask",
    "visible",
    "visible_in_blocks",
]
