"""Experts: grouped products of rows sorted by expert.

Runs what ``shardwright.costmodel.ops.moe.experts`` prices, in the same order. Experts and outputs
form one dimension, so that they shard by rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ....kernels.dense import activation
from ....kernels.moe.expert_bias import add_expert_bias
from ....kernels.moe.grouped_linear import DeferGradients, MakeGradients, grouped_linear
from ....spec.model.feed_forward import Moe
from ..deferred_gradients import DeferredGradients, add_gradients

if TYPE_CHECKING:
    from ..block import Block


def experts(block: Block, spec: Moe, x: Tensor, offsets: Tensor) -> Tensor:
    """Each expert's MLP on its rows of (rows, width) ``x``, which end at ``offsets``."""
    groups = offsets.shape[0]

    def through(rows: Tensor, *names: str) -> tuple[Tensor, ...]:
        slots = [f"experts_{name}" for name in names]
        weights, deferred = block.weights(*slots), block.tp.deferred
        expert_weights = [w.unflatten(0, (groups, -1)) for w in weights]  # type: ignore[no-untyped-call]
        keep = _deferrer(deferred, weights)
        outs = grouped_linear(block.kernels, rows, expert_weights, offsets, keep)
        if not spec.bias:
            return outs
        # Ranks that split an expert sum its outputs: each adds its part of the last bias.
        factor = 1.0 / block.expert_ranks.etp if names == ("down",) else 1.0
        return tuple(
            add_expert_bias(out, b.view(groups, -1), offsets, factor, _deferrer(deferred, [b]))
            for out, b in zip(outs, block.biases(*slots), strict=True)
        )

    projected = through(x, *(("gate", "up") if spec.gated else ("up",)))
    if spec.gated:
        inner = activation.swiglu(block.kernels, *projected)
    else:
        inner = activation.gelu(projected[0], tanh=spec.activation == "gelu_tanh")
    return through(inner, "down")[0]


def _deferrer(deferred: DeferredGradients | None, weights: list[Tensor]) -> DeferGradients | None:
    """Callback that defers gradients of experts, (experts · out, …) each."""
    if deferred is None:
        return None

    def keep(gradients: MakeGradients) -> bool:
        if not deferred.is_deferring:
            return False
        deferred.add(lambda: add_gradients(weights, [g.flatten(0, 1) for g in gradients()]))
        return True

    return keep


__all__ = ["experts"]
