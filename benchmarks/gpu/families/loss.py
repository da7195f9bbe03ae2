"""Cross-entropy over a vocabulary, alone and with the projection before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.kernels.cross_entropy import cross_entropy
from shardwright.kernels.dispatch import Dispatcher


def _ours(kernels: Dispatcher, logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets, 1 / targets.numel())


def _eager(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Forward and backward at once: the logits are read, and their gradient is written."""
    shape = (sizes.tokens, sizes.vocab)

    def make(given: Make) -> tuple[Tensor, Tensor]:
        return given.normal(*shape), given.whole(sizes.vocab, sizes.tokens)

    yield Entry(
        family="cross_entropy",
        case=f"{sizes.tokens} tokens, {sizes.vocab} words",
        mode="both",
        make=make,
        ours=_ours,
        eager=_eager,
        work=Work(2 * sizes.tokens * sizes.vocab * sizes.dtype.itemsize),
        peak=True,
    )
