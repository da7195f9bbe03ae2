"""DeepSeek-V2, V3 and V3.2 (arXiv:2405.04434, 2412.19437), Kimi-K2, Moonlight, GLM-4.7-Flash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    Indexer,
    LatentAttention,
    LayerRun,
    Mlp,
    ModelSpec,
    Moe,
    MultiTokenLayer,
)
from .activations import activation
from .config_keys import ConfigKeys
from .family import Family, decoder, runs_of
from .positions import rope_theta

MTP_KEYS = ("num_nextn_predict_layers", "num_mtp_layers")


def deepseek_v2(config: ConfigKeys, name: str) -> ModelSpec:
    """DeepSeek-V2: softmax routing, limited to groups if ``topk_method`` says so."""
    if config.flag_or("mlp_bias", False):
        raise config.refuse("mlp_bias", "use false")
    groups, groups_per_token = 1, 1
    method = config.text_or("topk_method", "greedy")
    if method == "group_limited_greedy":
        config.require(("n_group", "topk_group"))
        groups, groups_per_token = config.count("n_group"), config.count("topk_group")
    elif method != "greedy":
        raise config.refuse("topk_method", "nearest: greedy, group_limited_greedy")
    config.require(("num_experts_per_tok",))
    moe = Moe(
        experts=config.count_or("n_routed_experts", 64),
        topk=config.count("num_experts_per_tok"),
        ffn=config.count_or("moe_intermediate_size", 1407),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=shared_width(config, 2, 1407),
        groups=groups,
        groups_per_token=groups_per_token,
    )
    return _decoder(config, name, moe, dense=0, dense_ffn=11008)


def deepseek_v3(config: ConfigKeys, name: str) -> ModelSpec:
    """DeepSeek-V3: sigmoid routing, and multi-token layers."""
    return _decoder(config, name, _sigmoid_experts(config), dense=3, dense_ffn=18432, ahead=True)


def _sigmoid_experts(config: ConfigKeys) -> Moe:
    return sigmoid_experts(config, 256, 8, 2048, groups=8, groups_per_token=4)


def sigmoid_experts(
    config: ConfigKeys,
    experts: int,
    topk: int,
    ffn: int,
    *,
    groups: int = 1,
    groups_per_token: int = 1,
    key: str = "n_routed_experts",
) -> Moe:
    """Experts with sigmoid scores beside shared ones; the class's defaults.

    Args:
        config: the file.
        experts: experts of a layer, under ``key``.
        topk: experts of a token.
        ffn: width of an expert.
        groups: groups of experts.
        groups_per_token: groups of a token.
        key: where the file has the number of experts.
    """
    return Moe(
        experts=config.count_or(key, experts),
        topk=config.count_or("num_experts_per_tok", topk),
        ffn=config.count_or("moe_intermediate_size", ffn),
        activation=activation(config, "hidden_act", "silu", gated=True),
        shared_ffn=shared_width(config, 1, ffn),
        score="sigmoid",
        groups=config.count_or("n_group", groups),
        groups_per_token=config.count_or("topk_group", groups_per_token),
    )


def deepseek_v32(config: ConfigKeys, name: str) -> ModelSpec:
    """DeepSeek-V3.2 (arXiv:2512.02556): DeepSeek-V3, whose queries attend to chosen keys."""
    if config.flag_or("mlp_bias", False):
        raise config.refuse("mlp_bias", "use false")
    why = "the indexer's loss and its gradients are neither priced nor run; its choice is"
    indexer = Indexer(
        heads=config.count_or("index_n_heads", 64),
        head_dim=config.count_or("index_head_dim", 128),
        topk=config.count_or("index_topk", 2048),
    )
    config.assume("indexer", "forward only", why)
    attention = replace(latent_attention(config), indexer=indexer)
    moe = _sigmoid_experts(config)
    ahead = config.has(*MTP_KEYS) is not None
    return _decoder(config, name, moe, dense=3, dense_ffn=18432, ahead=ahead, attention=attention)


def glm4_moe_lite(config: ConfigKeys, name: str) -> ModelSpec:
    """GLM-4.7-Flash (Z.ai, 2026): DeepSeek-V3's blocks in GLM's sizes."""
    attention = latent_attention(config, query_rank=768, nope_dim=192, value_dim=256)
    moe = sigmoid_experts(config, 64, 4, 1536)
    ahead = config.has(*MTP_KEYS) is not None
    return _decoder(
        config,
        name,
        moe,
        dense=1,
        dense_ffn=10240,
        ahead=ahead,
        attention=attention,
        eps=1e-5,
    )


def shared_width(config: ConfigKeys, default: int, ffn: int) -> int:
    """Width of ``n_shared_experts`` together; the class's default number and width of one."""
    key = "n_shared_experts"
    if key in config.document and config.document[key] is None:
        return 0
    number = config.count(key, 0) if config.has(key) else config.count_or(key, default)
    width = config.count("moe_intermediate_size") if config.has("moe_intermediate_size") else ffn
    return number * width


def latent_attention(
    config: ConfigKeys, *, query_rank: int = 1536, nope_dim: int = 128, value_dim: int = 128
) -> LatentAttention:
    """Multi-head latent attention; sizes are the class's defaults."""
    rank = "q_lora_rank"
    direct = rank in config.document and config.document[rank] is None
    return LatentAttention(
        heads=config.size("num_attention_heads"),
        query_rank=None if direct else config.count_or(rank, query_rank),
        kv_rank=config.count_or("kv_lora_rank", 512),
        nope_dim=config.count_or("qk_nope_head_dim", nope_dim),
        rope_dim=config.count_or("qk_rope_head_dim", 64),
        value_dim=config.count_or("v_head_dim", value_dim),
        rope_theta=rope_theta(config),
        bias=config.flag_or("attention_bias", False),
    )


def _decoder(
    config: ConfigKeys,
    name: str,
    moe: Moe,
    *,
    dense: int,
    dense_ffn: int,
    ahead: bool = False,
    attention: LatentAttention | None = None,
    eps: float = 1e-6,
) -> ModelSpec:
    """A decoder of ``dense`` layers, then experts; ``ahead``: multi-token layers may follow."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    layers = config.layer_count()
    if config.document.get("moe_layer_freq", 1) != 1:
        raise config.refuse("moe_layer_freq", "use 1")
    first = dense_layers(config, layers, dense)
    attention = attention or latent_attention(config)
    eps = config.number_or("rms_norm_eps", eps)
    sparse = BlockLayer(hidden=hidden, attention=attention, mlp=moe, norm_eps=eps)
    blocks = [sparse] * layers
    if first:
        mlp = Mlp(ffn=config.count_or("intermediate_size", dense_ffn), activation=moe.activation)
        plain = BlockLayer(hidden=hidden, attention=attention, mlp=mlp, norm_eps=eps)
        blocks = [plain] * min(first, layers) + [sparse] * max(0, layers - first)
    return decoder(
        name,
        EmbeddingLayer(vocab=vocab, hidden=hidden),
        runs_of(blocks),
        norm="rmsnorm",
        norm_eps=eps,
        tied=config.flag_or("tie_word_embeddings", False),
        multi_token=multi_token_layers(config, sparse, vocab) if ahead else (),
    )


def dense_layers(config: ConfigKeys, layers: int, default: int) -> int:
    """Number of dense layers before the first experts, by ``mlp_layer_types`` or a number."""
    types = config.choices("mlp_layer_types", layers, ("dense", "sparse"))
    if types is None:
        key = "first_k_dense_replace"
        return config.count(key, 0) if config.has(key) else config.count_or(key, default)
    first = types.count("dense")
    if types != ["dense"] * first + ["sparse"] * (layers - first):
        raise config.refuse("mlp_layer_types", "use dense layers before sparse ones")
    return first


def multi_token_layers(config: ConfigKeys, block: BlockLayer, vocab: int) -> tuple[LayerRun, ...]:
    """Multi-token layers of ``block``, one if the configuration does not say.

    The library's class reads their number and does not build them.
    """
    key = config.has(*MTP_KEYS)
    count = config.count(key, 0) if key else config.count_or(MTP_KEYS[0], 1)
    if not count:
        return ()
    layer = MultiTokenLayer(
        hidden=block.hidden, vocab=vocab, block=block, norm=block.norm, norm_eps=block.norm_eps
    )
    return (LayerRun(layer=layer, count=count),)


KNOWN = ("num_key_value_heads", "head_dim", "qk_head_dim", "intermediate_size", "rope_interleave")
V32_KNOWN = ("first_k_dense_replace", "layer_types", "ep_size")
"""Keys that follow from others in latent attention, or that only dense layers read."""


def _family(
    model_type: str,
    config_class: str,
    build: Callable[[ConfigKeys, str], ModelSpec],
    known: tuple[str, ...] = KNOWN,
) -> Family:
    return Family(
        model_type=model_type, config_class=config_class, build=build, experts=True, known=known
    )


FAMILIES = (
    _family("deepseek_v2", "DeepseekV2Config", deepseek_v2),
    _family("deepseek_v3", "DeepseekV3Config", deepseek_v3),
    _family("deepseek_v32", "DeepseekV32Config", deepseek_v32, (*KNOWN, *V32_KNOWN)),
    _family("glm4_moe_lite", "Glm4MoeLiteConfig", glm4_moe_lite),
    _family("kimi_k2", "DeepseekV3Config", deepseek_v3),
)
