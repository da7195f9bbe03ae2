"""Jobs in which every expert gets as many rows as any other, as the cost model assumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from ranks import rank_jobs
from torch import Tensor

from shardwright.executor.launch.rank_context import RankContext
from shardwright.executor.models.moe import routing
from shardwright.spec.model.feed_forward import Moe


@contextmanager
def even_routing() -> Iterator[None]:
    """Tokens go to the experts in turn; what is recorded is the choice that would have been."""
    choose = routing.best_experts

    def in_turn(scores: Tensor, moe: Moe) -> tuple[Tensor, Tensor]:
        weights, chosen = choose(scores, moe)
        numbers = np.arange(chosen.numel()).reshape(chosen.shape) % moe.experts
        # Through the arrays, which no recorder sees.
        chosen.numpy()[:] = numbers
        weights.detach().numpy()[:] = np.take_along_axis(scores.detach().numpy(), numbers, 1)
        return weights, chosen

    routing.best_experts = in_turn  # type: ignore[assignment]
    try:
        yield
    finally:
        routing.best_experts = choose  # type: ignore[assignment]


def record(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.record`, evenly routed."""
    with even_routing():
        return rank_jobs.record(context, payload)


def live_bytes(context: RankContext, payload: dict[str, Any]) -> dict[str, Any]:
    """As :func:`ranks.rank_jobs.live_bytes`, evenly routed."""
    with even_routing():
        return rank_jobs.live_bytes(context, payload)
