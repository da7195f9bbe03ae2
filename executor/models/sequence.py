"""How a layer splits the sequence on a rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from ..token_layout import TokenLayout
from .ring_attention import Ring


@dataclass(frozen=True, slots=True)
class SequenceSplit:
    """A rank's tokens in a layer, its ring, and the ranks that exchange heads; None: it is alone.

    ``exchange`` has the ranks of Ulysses, which hold other tokens outside attention and other
    heads inside it.
    """

    tokens: TokenLayout
    ring: Ring | None = None
    exchange: dist.ProcessGroup | None = None


__all__ = ["SequenceSplit"]
