"""Grids of sizes, for a core and for a GPU."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Products' sides, elements of passes over memory, attention's shapes.

    ``unfused_sequences`` are those of attention by products and a score matrix (None: all).
    ``width`` is that of a row of the reducing, normalizing and indexed cases, ``vocab`` the rows of
    the indexed table. ``loss_vocab`` is the width of the loss's rows where there are enough of them
    (None: as of the others).
    """

    sides: tuple[int, ...]
    elements: tuple[int, ...]
    heads: tuple[int, ...]
    sequences: tuple[int, ...]
    head_dims: tuple[int, ...]
    unfused_sequences: tuple[int, ...] | None = None
    width: int = 256
    vocab: int = 4096
    loss_vocab: int | None = None

    @property
    def score_sequences(self) -> tuple[int, ...]:
        """Sequences with a score matrix."""
        return self.sequences if self.unfused_sequences is None else self.unfused_sequences

    def middle(self) -> Sizes:
        """The lower middle size of each."""
        return Sizes(**{f.name: _middle(getattr(self, f.name)) for f in fields(self)})


def _middle(ascending: Any) -> Any:
    if not isinstance(ascending, tuple):
        return ascending
    return (ascending[(len(ascending) - 1) // 2],)


COARSE = Sizes(
    sides=(64, 256, 1024),
    elements=(2**12, 2**16, 2**22),
    heads=(8,),
    sequences=(16, 128, 512, 2048),
    head_dims=(32, 64),
    unfused_sequences=(16, 128, 512),
)
"""Beyond a core's caches too: 2**20 elements have twice the rate of 2**22, which no cache holds,
and attention of 512 tokens skips less of what its mask hides than that of 2,048."""
FINE = Sizes(
    sides=(48, 96, 192, 384, 768, 1536),
    elements=(2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22),
    heads=(4, 16),
    sequences=(16, 64, 128, 256, 512, 1024),
    head_dims=(32, 64, 128),
)
CUDA_COARSE = Sizes(
    sides=(512, 2048, 8192),
    elements=(2**16, 2**22, 2**26),
    heads=(8, 32),
    sequences=(1024, 4096),
    head_dims=(64, 128),
    unfused_sequences=(1024, 2048),
    width=4096,
    vocab=32768,
    loss_vocab=131072,
)
CUDA_FINE = Sizes(
    sides=(128, 512, 1024, 2048, 4096, 8192, 16384),
    elements=(2**14, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28),
    heads=(8, 32),
    sequences=(512, 1024, 2048, 4096, 8192, 16384),
    head_dims=(64, 128),
    unfused_sequences=(512, 1024, 2048, 4096),
    width=4096,
    vocab=32768,
    loss_vocab=131072,
)
"""Sides and heads of models from 1 B to 70 B parameters and of their parts on ranks."""
