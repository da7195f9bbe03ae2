"""Feed-forward parts of a typed model.

An MLP, experts, or some layers of each.
"""

from __future__ import annotations

from typing import Literal, cast

from ...spec.model.feed_forward import GATED, Activation, Balance, FeedForward, Gate, Mlp, Moe
from .typed_reader import ModelKeys

FFN_MULTIPLE = 64
BALANCE_KEYS = ("aux_loss", "z_loss", "bias_rate", "router_jitter")
GATE_KEYS = ("gate", "gate_width", "slots", "capacity_order", "normalize_weights", *BALANCE_KEYS)
WITH_EXPERTS = (
    "topk",
    "expert_ffn",
    "shared_experts",
    "shared_ffn",
    "shared_gate",
    "dense_layers",
    "experts_every",
    "expert_groups",
    "groups_per_token",
    "router",
    "router_bias",
    "capacity_factor",
    *GATE_KEYS,
)
EXPERT_KEYS = ("experts", *WITH_EXPERTS)
GATES = ("topk", "switch", "gshard", "xmoe", "soft", "expert_choice")


def feed_forwards(
    keys: ModelKeys, hidden: int, layers: int, activation: Activation
) -> list[FeedForward]:
    """The feed-forward part of every layer.

    The first ``dense_layers`` keep the MLP; of the others the last of each ``experts_every`` has
    experts.
    """
    bias = keys.flag_or_default("mlp_bias")
    if not keys.has("experts"):
        keys.only_with("experts", *WITH_EXPERTS)
        return [Mlp(ffn=_ffn(keys, hidden, activation), activation=activation, bias=bias)] * layers
    keys.require(("topk",))
    moe = experts(keys, hidden, activation, bias)
    dense = keys.count_if("dense_layers", 0) or 0
    every = keys.count_if("experts_every") or 1
    sparse = [i >= dense and (i - dense + 1) % every == 0 for i in range(layers)]
    if all(sparse):
        return [moe] * layers
    mlp = Mlp(ffn=_ffn(keys, hidden, activation), activation=activation, bias=bias)
    return [moe if is_sparse else mlp for is_sparse in sparse]


def experts(keys: ModelKeys, hidden: int, activation: Activation, bias: bool) -> Moe:
    """The mixture of experts; ``expert_ffn`` left out is ``ffn``."""
    ffn = keys.count_if("expert_ffn") or _ffn(keys, hidden, activation)
    return Moe(
        experts=keys.count("experts"),
        topk=keys.count("topk"),
        ffn=ffn,
        activation=activation,
        bias=bias,
        shared_ffn=_shared_width(keys, ffn),
        shared_gate=keys.flag_if("shared_gate"),
        router_bias=keys.flag_if("router_bias"),
        score=cast(Literal["softmax", "sigmoid"], keys.choice_if("router", ("softmax", "sigmoid"))),
        groups=keys.count_if("expert_groups") or 1,
        groups_per_token=keys.count_if("groups_per_token") or 1,
        capacity_factor=keys.number_if("capacity_factor"),
        gate=cast(Gate, keys.choice_if("gate", GATES)),
        gate_width=keys.count_if("gate_width"),
        slots=keys.count_if("slots") or 1,
        capacity_order=cast(
            Literal["position", "probability"],
            keys.choice_if("capacity_order", ("position", "probability")),
        ),
        normalize=not keys.has("normalize_weights") or keys.flag_if("normalize_weights"),
        balance=_balance(keys),
    )


def _balance(keys: ModelKeys) -> Balance | None:
    """Means that spread tokens over experts; None where no key says any."""
    found = [(keys.number_if(name) or 0.0) if keys.has(name) else 0.0 for name in BALANCE_KEYS]
    if not any(keys.has(name) for name in BALANCE_KEYS):
        return None
    return Balance(aux_loss=found[0], z_loss=found[1], bias_rate=found[2], jitter=found[3])


def _shared_width(keys: ModelKeys, ffn: int) -> int:
    """Width of all shared experts together.

    Given, or a multiple of an expert's width.
    """
    if keys.has("shared_ffn") and keys.has("shared_experts"):
        raise keys.error("shared_experts", "nothing beside shared_ffn, which is their whole width")
    if keys.has("shared_ffn"):
        return keys.count("shared_ffn", 0)
    return (keys.count_if("shared_experts", 0) or 0) * ffn


def mlp(keys: ModelKeys, hidden: int, activation: Activation) -> Mlp:
    """The plain MLP."""
    width = _ffn(keys, hidden, activation)
    return Mlp(ffn=width, activation=activation, bias=keys.flag_or_default("mlp_bias"))


def _ffn(keys: ModelKeys, hidden: int, activation: Activation) -> int:
    if keys.has("ffn"):
        return keys.count("ffn")
    if activation not in GATED:
        return int(keys.assume("ffn", 4 * hidden, "left out; 4 x hidden"))
    exact = -(-8 * hidden // 3)
    rounded = -(-exact // FFN_MULTIPLE) * FFN_MULTIPLE
    why = f"left out; 8/3 x hidden for {activation}, up to a multiple of {FFN_MULTIPLE}"
    return int(keys.assume("ffn", rounded, why))
