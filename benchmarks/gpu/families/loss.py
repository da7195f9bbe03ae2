"""Cross-entropy over a vocabulary, alone and with the projection before it."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.entry import Entry, Make, Sizes, Work
from torch import Tensor
from torch.nn import functional as F

from shardwright.kernels.dense.cross_entropy import cross_entropy
from shardwright.kernels.dense.linear_cross_entropy import linear_cross_entropy
from shardwright.kernels.dispatch import Dispatcher


def _alone(kernels: Dispatcher, logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits, targets, 1 / targets.numel())


def _alone_eager(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets)


def _fused(kernels: Dispatcher, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(kernels, x, weight, targets, 1 / targets.numel(), is_root=True)


def _unfused(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy((x @ weight.t()).float(), targets)


def entries(sizes: Sizes) -> Iterator[Entry]:
    """Forward and backward at once: logits read, their gradient written.

    With the projection three products are the floor. The loss alone is what ranks that split the
    vocabulary do between their sums, in eager operations; no target is asked of it.
    """
    tokens, vocab, hidden = sizes.tokens, sizes.vocab, sizes.hidden

    def logits(maker: Make) -> tuple[Tensor, Tensor]:
        return maker.normal(tokens, vocab), maker.whole(vocab, tokens)

    def projected(maker: Make) -> tuple[Tensor, Tensor, Tensor]:
        weight = maker.normal(vocab, hidden) / hidden**0.5
        return maker.normal(tokens, hidden), weight, maker.whole(vocab, tokens)

    common = {"case": f"{tokens} tokens, {vocab} words", "mode": "both", "peak": True}
    yield Entry(
        family="cross_entropy",
        make=logits,
        ours=_alone,
        eager=_alone_eager,
        work=Work(2 * tokens * vocab * sizes.dtype.itemsize),
        judged=False,
        **common,
    )
    size = sizes.dtype.itemsize
    yield Entry(
        family="linear_cross_entropy",
        make=projected,
        ours=_fused,
        eager=_unfused,
        work=Work(2 * (tokens + vocab) * hidden * size, 3 * 2 * tokens * hidden * vocab),
        bound="matmul",
        **common,
    )
