"""Activation names of configurations, translated to ours."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import NotBuiltError, nearest_name
from ..model.feed_forward import Activation
from .config_keys import ConfigKeys

PLAIN: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
}
"""Activations of one projection."""
GATES: dict[str, Activation] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_python": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_python_tanh": "geglu_tanh",
}
"""Activations of a gate that multiplies a second projection."""


def activation(config: ConfigKeys, key: str, default: str, *, gated: bool) -> Activation:
    """The activation under ``key``.

    Raises:
        NotBuiltError: an activation without a counterpart here.
    """
    return named_activation(config, key, config.text_or(key, default), gated=gated)


def named_activation(config: ConfigKeys, key: str, name: str, *, gated: bool) -> Activation:
    """The activation called ``name`` under ``key``; errors as in ``activation``."""
    activations: Mapping[str, Activation] = GATES if gated else PLAIN
    if name not in activations:
        near = nearest_name(name, activations) or ("silu" if gated else "gelu")
        raise NotBuiltError(f"{config.where}: {key} {name}", f"nearest: {near}")
    return activations[name]
