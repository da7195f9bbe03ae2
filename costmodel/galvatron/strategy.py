"""Galvatron's split of one layer, in its own notation.

``1-4*-2f-c`` is one stage, four tensor-parallel ranks, two data-parallel ones with ZeRO-3 (``f``),
recomputed (``-c``); a final ``-sp`` means four Ulysses ranks.
"""

from __future__ import annotations

from typing import NamedTuple


class GalvatronStrategy(NamedTuple):
    """Degrees of pipeline, tensor or Ulysses, and data parallelism.

    ``zero3`` shards parameters too; else states shard as ZeRO-2 if ``dp`` is above 1. Shards lie
    over data-parallel and Ulysses ranks together.
    """

    pp: int
    tp: int = 1
    sp: int = 1
    dp: int = 1
    zero3: bool = False
    recompute: bool = False

    @property
    def degree(self) -> int:
        """Ranks per sample."""
        return max(self.tp, self.sp)

    @property
    def shard_ranks(self) -> int:
        """Ranks with the same weights."""
        return self.dp * self.sp

    @property
    def text(self) -> str:
        """Galvatron's notation."""
        star = "*" if self.degree > 1 else ""
        end = ("-c" if self.recompute else "") + ("-sp" if self.sp > 1 else "")
        return f"{self.pp}-{self.degree}{star}-{self.dp}{'f' if self.zero3 else ''}{end}"
