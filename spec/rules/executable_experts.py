"""Mixtures of experts that the bundled executor runs."""

from __future__ import annotations

from ..model.feed_forward import Moe

EXPERT_ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")


def unsupported_experts(moe: Moe) -> str | None:
    """Why the executor cannot run a mixture of experts; None if it can."""
    if moe.activation not in EXPERT_ACTIVATIONS:
        return f"activation {moe.activation} of experts is planned but not run yet"
    if moe.capacity_factor is not None:
        factor = f"a capacity factor of {moe.capacity_factor:g}"
        return f"{factor}, which drops tokens, is planned but not run yet"
    if moe.bias:
        return "experts with biases are planned but not run yet"
    if moe.latent is not None:
        return f"experts in a latent of {moe.latent} are planned but not run yet"
    return None
