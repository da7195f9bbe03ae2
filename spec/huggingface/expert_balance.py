"""Balance of experts in a configuration, as transformers' classes train them.

With ``output_router_logits`` their ``load_balancing_loss_func`` joins the routers of all layers and
adds ``router_aux_loss_coef`` times one loss: read as that coefficient over the number of layers
with experts, each with a loss of its own. Mixtral's ``router_jitter_noise`` spreads a layer's
input. What no class trains with (DeepSeek's ``aux_loss_alpha``) is not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ..model.experts import experts_of
from ..model.feed_forward import Balance, Moe
from ..model.layers import BlockLayer, Layer, MultiTokenLayer
from ..model.model_spec import ModelSpec
from .config_keys import ConfigKeys

COEFFICIENTS = {"gpt_oss": 0.9, "olmoe": 0.01, "phimoe": 0.0}
COEFFICIENT = 0.001
"""Of transformers' classes (5.23.0) that name none of their own above."""
JITTERS = ("mixtral",)
"""Families whose class multiplies a layer's input by ``router_jitter_noise``."""
AnyLayer = TypeVar("AnyLayer", bound=Layer)


def with_balance(config: ConfigKeys, model_type: str, model: ModelSpec) -> ModelSpec:
    """The model with the balance of its experts; itself where the file has none.

    Raises:
        InputError: a coefficient or noise that is not a number of at least 0.
    """
    sparse = sum(experts_of(layer) is not None for layer in model.layers())
    coefficient, jitter = 0.0, 0.0
    if sparse and config.document.get("output_router_logits") is True:
        key = "router_aux_loss_coef"
        if config.has(key):
            coefficient = config.number(key, exclusive=False)
        else:
            coefficient = COEFFICIENTS.get(model_type, COEFFICIENT)
            config.assume(key, coefficient)
    if sparse and model_type in JITTERS and config.has("router_jitter_noise"):
        jitter = config.number("router_jitter_noise", exclusive=False)
    if not coefficient and not jitter:
        return model
    jitters = "input" if jitter else "router"
    balance = Balance(aux_loss=coefficient / sparse, jitter=jitter, jitters=jitters)  # type: ignore[arg-type]
    towers = tuple(
        replace(
            tower,
            layers=tuple(
                replace(run, layer=_balanced_layer(run.layer, balance)) for run in tower.layers
            ),
        )
        for tower in model.towers
    )
    return replace(model, towers=towers)


def _balanced_layer(layer: AnyLayer, balance: Balance) -> AnyLayer:
    if isinstance(layer, MultiTokenLayer):
        return replace(layer, block=_balanced_layer(layer.block, balance))
    if isinstance(layer, BlockLayer) and isinstance(layer.mlp, Moe):
        return replace(layer, mlp=replace(layer.mlp, balance=balance))
    return layer
