"""Bamba (IBM, Princeton, CMU and UIUC, 2024): Mamba-2 or attention, then an MLP."""

from __future__ import annotations

from ...model.model_spec import Mixer, Mlp, ModelSpec
from ..activations import activation
from ..config_keys import ConfigKeys
from ..family import Family, parts_decoder
from ..granite_moe import mamba_state_space
from ..llama import DecoderRules, attention_of

RULES = DecoderRules(kv_heads=8, bias_key="attention_bias", rotary_fraction=0.5)
TYPES = ("linear_attention", "full_attention")


def bamba(config: ConfigKeys, name: str) -> ModelSpec:
    """Bamba: attention on the layers of ``attn_layer_indices``, half of each head turned."""
    hidden = config.size("hidden_size")
    types = _types(config, config.layer_count())
    mixers: dict[str, Mixer] = {}
    if "linear_attention" in types:
        mixers["linear_attention"] = mamba_state_space(config, hidden)
    if "full_attention" in types:
        mixers["full_attention"] = attention_of(config, hidden, RULES)
    mlp = Mlp(
        ffn=config.count_or("intermediate_size", 14336),
        activation=activation(config, "hidden_act", "silu", gated=True),
        bias=config.flag_or("mlp_bias", False),
    )
    mixed = [mixers[kind] for kind in types]
    return parts_decoder(config, name, mixed, [mlp] * len(types), 1e-5)


def _types(config: ConfigKeys, layers: int) -> list[str]:
    key = "attn_layer_indices"
    attending = config.document.get(key)
    if attending is None:
        config.assume(key, None)
        return [TYPES[0]] * layers
    if not isinstance(attending, list) or not all(type(i) is int for i in attending):
        raise config.error(key, "a list of layer numbers")
    return [TYPES[i in attending] for i in range(layers)]


KNOWN = (
    *("layers_block_type", "layer_types", "num_attention_heads", "num_key_value_heads"),
    *("attention_bias", "partial_rotary_factor", "z_loss_coefficient", "attn_rotary_emb"),
    *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"),
    *("mamba_expand", "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias"),
)
"""Keys that follow from others, or of kinds of blocks that a model may lack."""
FAMILIES = (Family(model_type="bamba", config_class="BambaConfig", build=bamba, known=KNOWN),)
