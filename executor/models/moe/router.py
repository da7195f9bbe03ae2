"""Router's surroundings: which tokens it reads, seeded draws, what it tallies for a step.

Draws depend on seed, layer, step, sample and position alone, so a token has the same under any
plan.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ....spec.model.feed_forward import Balance, Moe
from ....spec.parallel.batch_partition import IndexRange
from ....spec.parallel.sequence_partition import IndexRanges

AUXILIARY, Z_LOSS = 0, 1
"""Places of the losses that balance in a layer's tally."""


@dataclass(slots=True)
class RouterClock:
    """The pass that a rank is at, for all its routers.

    ``first_sample``: of its micro-batch in the global batch. ``counts``: tallies are kept, once a
    token: in forward passes.
    """

    step: int = 0
    first_sample: int = 0
    counts: bool = False
    loss_scale: float = 1.0


@dataclass(slots=True, kw_only=True)
class RouterState:
    """One layer's router on a rank.

    ``samples``: this rank's of a micro-batch; ``tokens``: its positions of ``seq_len``.
    ``all_tokens``: of the layer in a global batch. ``losses``: (2,) float64 and ``load``:
    (experts,) float64 assignments of this step; ``bias``: (experts,) float32, added to the scores
    that choose.
    """

    layer: int
    seed: int
    clock: RouterClock
    samples: IndexRange
    tokens: IndexRanges
    seq_len: int
    all_tokens: int
    losses: Tensor
    load: Tensor
    bias: Tensor | None = None

    @property
    def token_scale(self) -> float:
        """Weight of one token in the step's mean losses, with the loss scale."""
        return self.clock.loss_scale / self.all_tokens

    def uniform(self, kind: str, width: int, like: Tensor, low: float, high: float) -> Tensor:
        """Numbers from ``low`` to ``high``: (seq, batch, width) of this rank's tokens."""
        samples = range(self.samples.first, self.samples.end)
        shape = (len(samples), self.seq_len, width)
        drawn = torch.empty(shape, dtype=like.dtype, device=like.device)
        for row, sample in zip(drawn, samples, strict=True):
            number = self.clock.first_sample + sample
            generator = draws(self.seed, kind, self.layer, self.clock.step, number, like.device)
            row.uniform_(low, high, generator=generator)
        parts = [drawn[:, span.first : span.end] for span in self.tokens]
        return (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).transpose(0, 1)


def draws(
    seed: int, kind: str, layer: int, step: int, sample: int, device: torch.device
) -> torch.Generator:
    """The random stream of one sample in a layer and step."""
    digest = hashlib.sha256(f"{seed}:{kind}:{layer}:{step}:{sample}".encode()).digest()
    generator = torch.Generator(device=device)
    return generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def needs_router(moe: Moe) -> bool:
    """True if routing depends on more than its logits."""
    return moe.balance is not None or moe.gate == "gshard"


def required(router: RouterState | None, moe: Moe) -> RouterState:
    """The router's state.

    Raises:
        RuntimeError: nothing runs the steps that it belongs to.
    """
    if router is None:
        raise RuntimeError(f"gate {moe.gate} with {moe.balance}: no engine counts its steps")
    return router


def jittered(x: Tensor, balance: Balance, router: RouterState) -> Tensor:
    """``x`` (seq, batch, width) times factors around 1."""
    low, high = 1.0 - balance.jitter, 1.0 + balance.jitter
    return x * router.uniform("jitter", x.shape[-1], x, low, high)


__all__ = [
    "AUXILIARY",
    "Z_LOSS",
    "RouterClock",
    "RouterState",
    "draws",
    "jittered",
    "needs_router",
    "required",
]
