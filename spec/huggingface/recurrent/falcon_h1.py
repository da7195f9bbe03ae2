"""Falcon-H1 (arXiv:2507.22448): attention and a state space side by side in every block."""

from __future__ import annotations

from ...model.model_spec import (
    Mlp,
    ModelSpec,
    ParallelMixers,
    StateSpace,
)
from ..activations import activation
from ..config_keys import ConfigKeys
from ..decoders import note_multipliers
from ..family import Family, parts_decoder
from ..granite_moe import mamba_head_dim
from ..llama import DecoderRules, attention_of

RULES = DecoderRules(kv_heads=8, bias_key="attention_bias")
MULTIPLIERS = (
    "embedding_multiplier",
    "lm_head_multiplier",
    "key_multiplier",
    "attention_in_multiplier",
    "attention_out_multiplier",
    "ssm_in_multiplier",
    "ssm_out_multiplier",
)
LISTED_MULTIPLIERS = ("mlp_multipliers", "ssm_multipliers")


def falcon_h1(config: ConfigKeys, name: str) -> ModelSpec:
    """Falcon-H1: every block has both mixers, then an MLP."""
    hidden = config.size("hidden_size")
    layers = config.layer_count()
    mixer = ParallelMixers(
        attention=attention_of(config, hidden, RULES), state_space=_state_space(config, hidden)
    )
    mlp = Mlp(
        ffn=config.count_or("intermediate_size", 14336),
        activation=activation(config, "hidden_act", "silu", gated=True),
        bias=config.flag_or("mlp_bias", False),
    )
    _note_multipliers(config)
    return parts_decoder(config, name, [mixer] * layers, [mlp] * layers, 1e-5)


def _state_space(config: ConfigKeys, hidden: int) -> StateSpace:
    inner = _inner_width(config, hidden)
    heads = config.count_or("mamba_n_heads", 128)
    head_dim = mamba_head_dim(config, heads, inner, f"mamba_n_heads x mamba_d_head = {inner}")
    bias = config.flag_or("mamba_proj_bias", False)
    if config.flag_or("projectors_bias", False) != bias:
        raise config.refuse("projectors_bias", f"use {str(bias).lower()}, as mamba_proj_bias")
    norm = "none"
    if config.flag_or("mamba_rms_norm", False):
        first = config.flag_or("mamba_norm_before_gate", True)
        norm = "before_gate" if first else "behind_gate"
    return StateSpace(
        heads=heads,
        head_dim=head_dim,
        state_dim=config.count_or("mamba_d_state", 256),
        groups=config.count_or("mamba_n_groups", 1),
        conv_kernel=config.count_or("mamba_d_conv", 4),
        chunk=config.count_or("mamba_chunk_size", 256),
        bias=bias,
        conv_bias=config.flag_or("mamba_conv_bias", True),
        norm=norm,  # type: ignore[arg-type]
    )


def _inner_width(config: ConfigKeys, hidden: int) -> int:
    key = "mamba_d_ssm"
    if key in config.document and config.document[key] is None:
        return config.count_or("mamba_expand", 2) * hidden
    return config.count_or(key, 1024)


def _note_multipliers(config: ConfigKeys) -> None:
    note_multipliers(config, MULTIPLIERS)
    for key in LISTED_MULTIPLIERS:
        factors = config.document.get(key)
        if isinstance(factors, list) and any(factor != 1 for factor in factors):
            config.assume(key, factors, "scalar factors of activations are neither priced nor run")


FAMILIES = (
    Family(
        model_type="falcon_h1",
        config_class="FalconH1Config",
        build=falcon_h1,
        known=("mamba_expand", "mamba_norm_before_gate", "layers_block_type", "layer_types"),
    ),
)
