"""Jobs with a chosen routing: every expert gets as many rows as any other, or shares of a power."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from ranks import rank_jobs
from torch import Tensor

from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.models.moe import gate
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.workload.expert_load import power_shares

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples lie evenly in [0, 1) without a remainder."""


Numbers = Callable[[int, Moe], "np.ndarray[Any, Any]"]
"""(tokens, topk) experts of so many tokens."""


def in_turn(tokens: int, moe: Moe) -> np.ndarray[Any, Any]:
    """The experts one after the other."""
    return np.arange(tokens * moe.topk).reshape(tokens, moe.topk) % moe.experts


def by_power(exponent: float) -> Numbers:
    """Experts by shares of a power: systematic sampling, each expert at most once a token."""

    def numbers(tokens: int, moe: Moe) -> np.ndarray[Any, Any]:
        shares = power_shares(moe.experts, exponent, moe.topk)
        ends = np.cumsum(shares)[:-1] * moe.topk
        places = (np.arange(tokens) * GOLDEN % 1)[:, None] + np.arange(moe.topk)
        return np.searchsorted(ends, places, side="right")

    return numbers


@contextmanager
def routing(numbers: Numbers) -> Iterator[None]:
    """Tokens go where they are told; what is recorded is the choice that would have been."""
    choose = gate.best_experts

    def told(scores: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
        weights, chosen = choose(scores, moe)
        experts = numbers(chosen.shape[0], moe)
        # Through the arrays, which no recorder sees.
        chosen.numpy()[:] = experts
        weights.detach().numpy()[:] = np.take_along_axis(scores.detach().numpy(), experts, 1)
        return weights, chosen

    gate.best_experts = told  # type: ignore[assignment]
    try:
        yield
    finally:
        gate.best_experts = choose  # type: ignore[assignment]


def record(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.record`, evenly routed."""
    with routing(in_turn):
        return rank_jobs.record(context, payload)


def live_bytes(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.live_bytes`, evenly routed."""
    with routing(in_turn):
        return rank_jobs.live_bytes(context, payload)
