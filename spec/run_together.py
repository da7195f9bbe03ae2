"""What the bundled executor runs each by itself, and not together yet.

Each line says why: latent attention turns its shared key by whole sequences; adapters stand beside
projections of one matrix.
"""

from __future__ import annotations

from .feed_forward import Moe
from .layers import BlockLayer, Layer
from .mixers import LatentAttention
from .plan import Plan
from .strategy import LayerStrategy
from .workload import Workload


def layer_together_reason(layer: Layer, strategy: LayerStrategy, workload: Workload) -> str | None:
    """Why a layer does not run under a strategy and workload that others run under."""
    if not isinstance(layer, BlockLayer):
        return None
    latent = isinstance(layer.attention, LatentAttention)
    if latent and (strategy.cp > 1 or strategy.ulysses):
        how = f"cp {strategy.cp}" if strategy.cp > 1 else "sequence_parallel ulysses"
        return f"{how} of latent attention is planned but not run yet"
    if isinstance(layer.mlp, Moe) and workload.adapters is not None:
        for name in workload.adapters.targets:
            if name.startswith("experts_"):
                return f"lora beside {name}, the matrices of all experts, is not built; freeze them"
    return None


def together_reason(plan: Plan) -> str | None:
    """Why the executor does not run a plan whose parts it runs; None if it does."""
    layers = zip(plan.model.layers(), plan.layer_strategies(), strict=True)
    for layer, strategy in dict.fromkeys(layers):
        if reason := layer_together_reason(layer, strategy, plan.workload):
            return reason
    return None


__all__ = ["layer_together_reason", "together_reason"]
