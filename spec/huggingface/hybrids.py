"""State spaces, linear attention and hybrids: mamba2, nemotron_h, qwen3_next, qwen3_5_moe."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InputError
from ..model.feed_forward import FeedForward
from ..model.model_spec import (
    Attention,
    BlockLayer,
    DeltaRule,
    EmbeddingLayer,
    LayerRun,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    MultiTokenLayer,
    StateSpace,
)
from .activations import activation
from .config_keys import LAYERS, ConfigKeys
from .family import Family, decoder, parts_decoder, rms_decoder, runs_of
from .llama import DecoderRules, attention_of
from .moe import sparse_layers

PATTERN = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
OLD_TYPES = {"mamba": "linear_attention", "attention": "full_attention"}
QWEN3_NEXT_TYPES = ("linear_attention", "full_attention")


def mamba2(config: ConfigKeys, name: str) -> ModelSpec:
    """Mamba-2 (arXiv:2405.21060): state spaces without feed-forward parts."""
    hidden, layers, vocab = (
        config.size("hidden_size"),
        config.layer_count(),
        config.size("vocab_size"),
    )
    heads, head_dim = config.size("num_heads"), config.count_or("head_dim", 64)
    if config.count_or("expand", 2) * hidden != heads * head_dim:
        allowed = f"expand x hidden_size {hidden} = num_heads x head_dim {head_dim}"
        raise config.error("num_heads", allowed)
    activation(config, "hidden_act", "silu", gated=True)
    mixer = StateSpace(
        heads=heads,
        head_dim=head_dim,
        state_dim=config.count_or("state_size", 128),
        groups=config.count_or("n_groups", 8),
        conv_kernel=config.count_or("conv_kernel", 4),
        chunk=config.count_or("chunk_size", 256),
        bias=config.flag_or("use_bias", False),
        conv_bias=config.flag_or("use_conv_bias", True),
    )
    eps = config.number_or("layer_norm_epsilon", 1e-5)
    block = BlockLayer(hidden=hidden, attention=mixer, mlp=None, norm_eps=eps)
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    return rms_decoder(config, name, embedding, [block] * layers, eps)


def nemotron_h(config: ConfigKeys, name: str) -> ModelSpec:
    """Nemotron-H (arXiv:2504.03624): each block is a mixer or a feed-forward part alone."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    types = _layer_types(config, "layers_block_type", "hybrid_override_pattern")
    if config.has(LAYERS) and config.count(LAYERS) != len(types):
        raise config.error(LAYERS, f"{len(types)}, as many as the pattern has", len(types))
    eps = config.number_or("layer_norm_epsilon", 1e-5)
    parts = {kind: _nemotron_part(config, kind, types) for kind in dict.fromkeys(types)}

    def block(kind: str) -> BlockLayer:
        mixer, mlp = parts[kind]
        return BlockLayer(hidden=hidden, attention=mixer, mlp=mlp, norm_eps=eps)

    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(block(kind) for kind in types),
        norm="rmsnorm",
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", False),
        multi_token=_multi_token_layers(config, hidden, vocab, eps),
    )


def _layer_types(config: ConfigKeys, listed: str, pattern: str) -> list[str]:
    """Kinds of all layers, from names or from letters."""
    if config.has(listed) or config.has("layer_types"):
        key = config.has(listed, "layer_types") or listed
        entries = config.document[key]
        names = set(PATTERN.values()) | set(OLD_TYPES)
        if isinstance(entries, list) and entries and all(x in names for x in map(str, entries)):
            return [OLD_TYPES.get(str(x), str(x)) for x in entries]
        raise config.error(key, "a list of " + ", ".join(sorted(names)))
    config.require((pattern,))
    text = config.text(pattern)
    if set(text) - set(PATTERN):
        raise config.error(pattern, "letters M (state space), * (attention), - (MLP), E (experts)")
    return [PATTERN[letter] for letter in text]


def _nemotron_part(
    config: ConfigKeys, kind: str, types: list[str]
) -> tuple[Mixer | None, FeedForward | None]:
    if kind == "linear_attention":
        return _nemotron_state_space(config), None
    if kind == "full_attention":
        heads = config.size("num_attention_heads")
        mixer = Attention(
            heads=heads,
            kv_heads=config.kv_heads(heads, 8),
            head_dim=config.count_or("head_dim", 128),
            rotary=False,
        )
        return mixer, None
    bias = config.flag_or("mlp_bias", False)
    mlp_activation = activation(config, "mlp_hidden_act", "relu2", gated=False)
    if kind == "mlp":
        ffn = config.count_or("intermediate_size", 21504)
        return None, Mlp(ffn=ffn, activation=mlp_activation, bias=bias)
    if bias:
        raise config.refuse("mlp_bias", "use false beside experts")
    moe = Moe(
        experts=config.count_or("n_routed_experts", 8),
        topk=config.count_or("num_experts_per_tok", 2),
        ffn=config.count_or("moe_intermediate_size", 7688),
        activation=mlp_activation,
        shared_ffn=config.count_or("moe_shared_expert_intermediate_size", 7688),
        score="sigmoid",
        groups=config.count_or("n_group", 1),
        groups_per_token=config.count_or("topk_group", 1),
        latent=config.count("moe_latent_size") if config.has("moe_latent_size") else None,
    )
    return None, moe


def _nemotron_state_space(config: ConfigKeys) -> StateSpace:
    activation(config, "mamba_hidden_act", "silu", gated=True)

    def either(old: str, new: str, default: int) -> int:
        return config.count(old) if config.has(old) else config.count_or(new, default)

    old_bias = config.has("mamba_conv_bias")
    return StateSpace(
        heads=config.count_or("mamba_num_heads", 128),
        head_dim=config.count_or("mamba_head_dim", 64),
        state_dim=config.count_or("ssm_state_size", 128),
        groups=either("mamba_n_groups", "n_groups", 8),
        conv_kernel=either("mamba_d_conv", "conv_kernel", 4),
        chunk=either("mamba_chunk_size", "chunk_size", 128),
        bias=config.flag_or("use_bias", False),
        conv_bias=config.flag(old_bias) if old_bias else config.flag_or("use_conv_bias", True),
    )


def _multi_token_layers(
    config: ConfigKeys, hidden: int, vocab: int, eps: float
) -> tuple[LayerRun, ...]:
    """Multi-token layers; an attention layer and an expert layer become one block."""
    key = "num_nextn_predict_layers"
    count = config.count(key, 0) if config.has(key) else 0
    if not count:
        return ()
    kinds = ["full_attention", "moe"]
    if config.has("mtp_layers_block_type") or config.has("mtp_hybrid_override_pattern"):
        kinds = _layer_types(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    if kinds != ["full_attention", "moe"]:
        raise config.refuse("mtp_layers_block_type", "use full_attention, moe")
    attention = _nemotron_part(config, "full_attention", kinds)[0]
    moe = _nemotron_part(config, "moe", kinds)[1]
    block = BlockLayer(hidden=hidden, attention=attention, mlp=moe, norm_eps=eps)
    layer = MultiTokenLayer(hidden=hidden, vocab=vocab, block=block, norm_eps=eps)
    return (LayerRun(layer=layer, count=count),)


def qwen3_next(config: ConfigKeys, name: str) -> ModelSpec:
    """Qwen3-Next: gated delta rule, every fourth layer gated attention, experts."""
    layers = config.layer_count()
    moe = gated_shared_experts(config, experts=512, topk=10)
    parts = sparse_layers(config, layers, moe, dense_ffn=5632)
    return parts_decoder(config, name, gated_mixers(config, layers), parts, eps=1e-6)


def qwen3_5_moe(config: ConfigKeys, name: str) -> ModelSpec:
    """Text of Qwen3.5 with experts: Qwen3-Next without dense layers."""
    layers = config.layer_count()
    moe = gated_shared_experts(config, experts=256, topk=8)
    return parts_decoder(config, name, gated_mixers(config, layers), [moe] * layers, eps=1e-6)


def qwen3_5(config: ConfigKeys, name: str) -> ModelSpec:
    """Text of Qwen3.5: Qwen3-Next's mixers before MLPs."""
    layers = config.layer_count()
    mlp = Mlp(
        ffn=config.count_or("intermediate_size", 12288),
        activation=activation(config, "hidden_act", "silu", gated=True),
    )
    mixers = gated_mixers(config, layers, kv_heads=4)
    return parts_decoder(config, name, mixers, [mlp] * layers, eps=1e-6)


def gated_mixers(config: ConfigKeys, layers: int, kv_heads: int = 2) -> list[Mixer]:
    """Qwen3-Next's mixers: the gated delta rule, on some layers gated attention.

    ``kv_heads``: the class's default.
    """
    hidden = config.size("hidden_size")
    rules = DecoderRules(
        kv_heads=kv_heads,
        head_dim=256,
        bias_key="attention_bias",
        qk_norm=True,
        rotary_fraction=0.25,
    )
    attention = replace(attention_of(config, hidden, rules), output_gate=True)
    delta = DeltaRule(
        key_heads=config.count_or("linear_num_key_heads", 16),
        value_heads=config.count_or("linear_num_value_heads", 32),
        key_dim=config.count_or("linear_key_head_dim", 128),
        value_dim=config.count_or("linear_value_head_dim", 128),
        conv_kernel=config.count_or("linear_conv_kernel_dim", 4),
    )
    if delta.value_heads % delta.key_heads:
        allowed = f"a multiple of linear_num_key_heads {delta.key_heads}"
        raise InputError(f"{config.where}: linear_num_value_heads", delta.value_heads, allowed)
    types = config.choices("layer_types", layers, QWEN3_NEXT_TYPES)
    if types is None:
        key = "full_attention_interval"
        every = config.count(key) if config.has(key) else config.count_or(key, 4)
        types = [QWEN3_NEXT_TYPES[(i + 1) % every == 0] for i in range(layers)]
    return [attention if kind == "full_attention" else delta for kind in types]


def gated_shared_experts(config: ConfigKeys, *, experts: int, topk: int) -> Moe:
    """Qwen3-Next's experts: a shared one behind a gate; the class's default numbers."""
    return Moe(
        experts=config.count_or("num_experts", experts),
        topk=config.count_or("num_experts_per_tok", topk),
        ffn=config.count_or("moe_intermediate_size", 512),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=config.count_or("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )


NEMOTRON_H_KNOWN = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "mlp_bias"),
    *("mlp_hidden_act", "mamba_hidden_act", "mamba_num_heads", "mamba_head_dim", "ssm_state_size"),
    *("mamba_n_groups", "n_groups", "mamba_d_conv", "conv_kernel", "mamba_chunk_size"),
    *("chunk_size", "use_bias", "use_conv_bias", "mamba_conv_bias", "mamba_proj_bias", "expand"),
    *("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"),
    *("moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "moe_latent_size"),
    *("n_group", "topk_group", "mtp_layers_block_type", "mtp_hybrid_override_pattern"),
    *("hybrid_override_pattern", "layers_block_type", "layer_types", "use_mamba_kernels"),
    *("mamba_expand", "attention_bias", "sliding_window"),
)
"""Keys of kinds of blocks that a pattern may lack."""
FAMILIES = (
    Family(
        model_type="mamba2",
        config_class="Mamba2Config",
        build=mamba2,
        dropout={},
    ),
    Family(
        model_type="nemotron_h",
        config_class="NemotronHConfig",
        build=nemotron_h,
        dropout={"attention_dropout": 0.0, "hidden_dropout": 0.0},
        experts=True,
        known=NEMOTRON_H_KNOWN,
    ),
    Family(
        model_type="qwen3_next",
        config_class="Qwen3NextConfig",
        build=qwen3_next,
        experts=True,
        known=("intermediate_size", "full_attention_interval"),
    ),
    Family(
        model_type="qwen3_5_moe_text",
        config_class="Qwen3_5MoeTextConfig",
        build=qwen3_5_moe,
        experts=True,
        known=("intermediate_size", "full_attention_interval"),
    ),
)
