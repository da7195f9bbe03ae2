"""What the bundled executor runs each by itself, and not together yet.

It says why: adapters stand beside projections of one matrix.
"""

from __future__ import annotations

from ..model.feed_forward import Moe
from ..model.layers import BlockLayer, Layer
from ..plan.plan import Plan
from ..workload.workload import Workload


def unsupported_layer_together(layer: Layer, workload: Workload) -> str | None:
    """Why a layer does not run under a workload that others run under."""
    if not isinstance(layer, BlockLayer):
        return None
    if isinstance(layer.mlp, Moe) and workload.adapters is not None:
        for name in workload.adapters.targets:
            if name.startswith("experts_"):
                return f"lora beside {name}, the matrices of all experts, is not built; freeze them"
    return None


def unsupported_together(plan: Plan) -> str | None:
    """Why the executor does not run a plan whose parts it runs; None if it does."""
    for layer in plan.model.kinds():
        if reason := unsupported_layer_together(layer, plan.workload):
            return reason
    return None


__all__ = ["unsupported_layer_together", "unsupported_together"]
