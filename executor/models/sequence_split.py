"""Split of the sequence in a layer on a rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from ...spec.strategy import LayerStrategy
from .context_parallel.ring_attention import Ring
from .token_layout import TokenLayout, token_layout


@dataclass(frozen=True, slots=True)
class SequenceSplit:
    """A rank's tokens in a layer, its ring and Ulysses group.

    None: no such split. The ranks of ``ulysses_group`` hold other tokens outside attention and
    other heads inside it.
    """

    tokens: TokenLayout
    ring: Ring | None = None
    ulysses_group: dist.ProcessGroup | None = None


def unsplit_sequence(seq_len: int) -> SequenceSplit:
    """All tokens of a sample on one rank."""
    return SequenceSplit(token_layout(LayerStrategy(), 0, seq_len))


__all__ = ["SequenceSplit", "unsplit_sequence"]
