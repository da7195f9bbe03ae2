"""Gemma 4's text: layers of two head widths, norms of values, keys that are values too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..inputs.typed_keys import TypedKeys
from ..model.model_spec import Attention, ModelSpec
from .config_keys import ConfigKeys
from .family import Family
from .gemma import cap, sandwiches
from .positions import note_scaling, patterned_window

FULL_EVERY = 6
THETAS = {"full_attention": 1e6, "sliding_attention": 1e4}
PER_LAYER = "hidden_size_per_layer_input"
UNBUILT = {
    PER_LAYER: (0, "embeddings of each layer are not read; use 0"),
    "num_kv_shared_layers": (0, "keys and values shared by layers are not read; use 0"),
    "enable_moe_block": (False, "experts beside an MLP are not read; use false"),
}
"""Key → its default, and what to do where it is set."""


def gemma4(config: ConfigKeys, name: str) -> ModelSpec:
    """Gemma 4's text; its class embeds each layer, unless told otherwise."""
    if PER_LAYER not in config.document:
        config.require((PER_LAYER,))
    return gemma4_dense(config, name, window=512)


def gemma4_dense(config: ConfigKeys, name: str, window: int = 1024) -> ModelSpec:
    """Gemma 4's dense text: full layers have wider and fewer key heads than windowed ones."""
    for key, (default, instead) in UNBUILT.items():
        if config.document.get(key, default):
            raise config.refuse(key, instead)
    hidden, layers, vocab = (
        config.size("hidden_size"),
        config.layer_count(),
        config.size("vocab_size"),
    )
    if config.document.get("use_bidirectional_attention") == "all":
        raise config.refuse("use_bidirectional_attention", "use null or vision")
    windows = patterned_window(config, layers, window, full_every=FULL_EVERY)
    windows[-1] = None  # the class makes the last layer a full one
    sliding, full = _attentions(config, layers, windows)
    attentions = [full if w is None else replace(sliding, window=w) for w in windows]
    capped = cap(config, "final_logit_softcapping", None)
    return sandwiches(config, name, vocab, hidden, attentions, softcap=capped)


def _attentions(
    config: ConfigKeys, layers: int, windows: list[int | None]
) -> tuple[Attention, Attention]:
    """Attention of windowed and of full layers."""
    heads = config.size("num_attention_heads")
    bias = config.flag_or("attention_bias", False)
    sliding = Attention(
        heads=heads,
        kv_heads=config.kv_heads(heads, 4),
        head_dim=config.count_or("head_dim", 256),
        rope_theta=_theta(config, "sliding_attention"),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        value_norm=True,
    )
    same = config.flag_or("attention_k_eq_v", False)
    head_dim, kv_heads = _full_sizes(config, layers, windows, sliding.kv_heads, same)
    if heads % kv_heads:
        allowed = f"a divisor of num_attention_heads {heads}"
        raise InputError(f"{config.where}: num_global_key_value_heads", kv_heads, allowed)
    full = replace(
        sliding,
        head_dim=head_dim,
        kv_heads=kv_heads,
        keys_as_values=same,
        rope_theta=_theta(config, "full_attention"),
    )
    return sliding, full


def _full_sizes(
    config: ConfigKeys, layers: int, windows: list[int | None], kv_heads: int, same: bool
) -> tuple[int, int]:
    """Head width and key heads of full layers, which saved files list a layer."""
    config.known("global_head_dim", "num_global_key_value_heads")
    listed = config.document.get("per_layer_config")
    if listed is None:
        head_dim = config.count_or("global_head_dim", 512)
        key = "num_global_key_value_heads"
        return head_dim, config.count(key) if same and config.has(key) else kv_heads
    where = f"{config.where}: per_layer_config"
    if not isinstance(listed, Mapping):
        raise config.error("per_layer_config", "sizes by layer")
    full = [listed.get(_number(listed, i), {}) for i in range(layers) if windows[i] is None]
    if any(x != full[0] for x in full) or not isinstance(full[0], Mapping):
        raise InputError(where, "several sizes", "the same for all full layers")
    keys = TypedKeys(full[0], where)
    head_dim = keys.count("head_dim") if keys.has("head_dim") else config.count_or("head_dim", 256)
    key = "num_key_value_heads"
    return head_dim, keys.count(key) if keys.has(key) else kv_heads


def _number(listed: Mapping[Any, Any], layer: int) -> Any:
    """The key of a layer: a number, or its digits, with or without leading zeros."""
    return next((key for key in listed if str(key).lstrip("0") == str(layer).lstrip("0")), layer)


def _theta(config: ConfigKeys, kind: str) -> float:
    parameters = config.document.get("rope_parameters") or {}
    inner = parameters.get(kind) if isinstance(parameters, Mapping) else None
    where = f"{config.where}: rope_parameters.{kind}"
    if inner is None:
        return THETAS[kind]
    if not isinstance(inner, Mapping):
        raise InputError(where, "something else", "a mapping")
    note_scaling(config, inner)
    keys = TypedKeys(inner, where)
    return keys.number("rope_theta") if keys.has("rope_theta") else THETAS[kind]


KNOWN = (
    *("vocab_size_per_layer_input", "use_double_wide_mlp", "num_experts", "top_k_experts"),
    *("moe_intermediate_size", "use_bidirectional_attention"),
)
FAMILIES = (
    Family(
        model_type="gemma4_text",
        config_class="Gemma4TextConfig",
        build=gemma4,
        known=KNOWN,
    ),
    Family(
        model_type="gemma4_unified_text",
        config_class="Gemma4UnifiedTextConfig",
        build=gemma4_dense,
        known=KNOWN,
    ),
)
