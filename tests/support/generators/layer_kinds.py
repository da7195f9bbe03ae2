"""One small layer of every attention-type and tower kind, and the shapes they are run in."""

from __future__ import annotations

import itertools
from dataclasses import replace

from shardwright.costmodel.symbolic.layer_shape import LayerShape, TowerInputShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    NormLayer,
    PatchLayer,
    ProjectorLayer,
)
from shardwright.spec.model.mixers import Attention, LatentAttention
from shardwright.spec.model.model_spec import Activation, Mlp
from shardwright.spec.rules.layer_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy

HIDDEN, VOCAB, TOKENS, BATCH, SOURCE_TOKENS = 32, 96, 16, 2, 24
ATTENTION = Attention(heads=4, kv_heads=2, head_dim=8)
MLP = Mlp(ffn=48)
BLOCK = BlockLayer(hidden=HIDDEN, attention=ATTENTION, mlp=MLP)
LATENT = LatentAttention(heads=4, query_rank=12, kv_rank=8, nope_dim=6, rope_dim=4, value_dim=5)
BIASED = replace(ATTENTION, qkv_bias=True, out_bias=True)
CROSS = replace(ATTENTION, mask="full", rotary=False)
ACTIVATIONS: tuple[Activation, ...] = (
    "gelu",
    "gelu_tanh",
    "relu",
    "relu2",
    "swiglu",
    "geglu",
    "geglu_tanh",
    "clamped_swiglu",
)


def block(attention: Attention | LatentAttention | None, **fields: object) -> BlockLayer:
    """A block around an attention."""
    return replace(BLOCK, attention=attention, **fields)  # type: ignore[arg-type]


ATTENTIONS: dict[str, BlockLayer] = {
    "causal": BLOCK,
    "full": block(replace(ATTENTION, mask="full")),
    "window": block(replace(ATTENTION, window=5)),
    "partial rotary": block(replace(ATTENTION, rotary_dim=4)),
    "qk norm": block(replace(ATTENTION, qk_norm=True)),
    "joint qk norm": block(replace(ATTENTION, qk_norm=True, qk_norm_joint=True)),
    "qk norm without weights": block(
        replace(ATTENTION, qk_norm=True, qk_norm_weight=False, rotary_dim=4)
    ),
    "chunks": block(replace(ATTENTION, chunk=5)),
    "unmasked chunks": block(replace(ATTENTION, chunk=8, mask="full")),
    "value norm": block(replace(ATTENTION, qk_norm=True, value_norm=True)),
    "keys as values": block(replace(ATTENTION, qk_norm=True, value_norm=True, keys_as_values=True)),
    "softcap": block(replace(ATTENTION, softcap=50.0)),
    "sinks": block(replace(ATTENTION, sinks=True, window=7)),
    "output gate": block(replace(ATTENTION, output_gate=True)),
    "relative": block(replace(ATTENTION, relative_buckets=6, rotary=False)),
    "shared bias": block(replace(ATTENTION, shared_bias=True, rotary=False)),
    "latent": block(LATENT),
    "latent, not turned": block(replace(LATENT, rotary=False)),
    "latent, whole queries": block(replace(LATENT, query_rank=None, bias=True)),
}
BLOCKS: dict[str, BlockLayer] = {
    **ATTENTIONS,
    "cross": block(ATTENTION, cross_attention=CROSS),
    "cross, post": block(BIASED, cross_attention=BIASED, norm_placement="post"),
    "post": block(BIASED, norm="layernorm", norm_placement="post", mlp=replace(MLP, bias=True)),
    "sandwich": block(BIASED, norm_placement="sandwich"),
    "norms after": block(BIASED, norm_placement="after"),
    "stream": block(BIASED, norm_placement="stream"),
    "parallel": block(BIASED, norm="layernorm", parallel=True, mlp=replace(MLP, bias=True)),
    "parallel, one norm": block(ATTENTION, parallel=True, shared_norm=True),
    "mixer only": block(ATTENTION, mlp=None),
    "feed-forward only": block(None),
    **{f"{name} MLP": block(ATTENTION, mlp=replace(MLP, activation=name)) for name in ACTIVATIONS},
}
LAYERS: dict[str, Layer] = {
    **BLOCKS,
    "embedding": EmbeddingLayer(vocab=VOCAB, hidden=HIDDEN),
    "segments": EmbeddingLayer(
        vocab=VOCAB, hidden=HIDDEN, positions=20, token_types=2, norm="layernorm"
    ),
    "images among tokens": EmbeddingLayer(vocab=VOCAB, hidden=HIDDEN, positions=None),
    "patches": PatchLayer(hidden=HIDDEN, image=12, patch=3, class_token=False),
    "patches and class": PatchLayer(hidden=HIDDEN, image=12, patch=3, norm="layernorm"),
    "projector": ProjectorLayer(hidden=HIDDEN, inner=40, out=24, merge=2, norm="layernorm"),
    "stretched positions": PatchLayer(
        hidden=HIDDEN, image=12, patch=3, class_token=False, frames=2, position_rows=25
    ),
    "pooled tokens": ProjectorLayer(
        hidden=HIDDEN, inner=0, out=24, pool=4, norm="rmsnorm", bias=False
    ),
    "merged tokens": ProjectorLayer(
        hidden=HIDDEN, inner=40, out=24, merge=2, merged=HIDDEN, norm="rmsnorm"
    ),
    "mergers of several blocks": ProjectorLayer(
        hidden=HIDDEN, inner=40, out=24, merge=2, norm="layernorm", further=2
    ),
    "single projection": ProjectorLayer(hidden=HIDDEN, inner=0, out=24, bias=False),
    "norm": NormLayer(hidden=HIDDEN),
    "classifier": ClassifierLayer(hidden=HIDDEN, classes=10),
    "head": HeadLayer(hidden=HIDDEN, vocab=VOCAB),
    "head after norms": HeadLayer(hidden=HIDDEN, vocab=VOCAB, norm=None, bias=True, transform=True),
    "capped head": HeadLayer(hidden=HIDDEN, vocab=VOCAB, softcap=30.0),
    "multi-token": MultiTokenLayer(hidden=HIDDEN, vocab=VOCAB, block=BLOCK),
}
READERS = ("cross", "cross, post", "images among tokens")
SPLITS = [
    LayerStrategy(tp=tp, sequence_parallel=sp, recompute=recompute)  # type: ignore[arg-type]
    for tp, sp in ((1, "none"), (2, "none"), (2, "megatron"))
    for recompute in ("none", "selective", "full")
]
STACKS = [
    replace(stack(name, on_cores=True), attention=attention)  # type: ignore[arg-type]
    for name in ("shardwright", "megatron")
    for attention in ("flash", "unfused")
]


def shape_of(name: str, strategy: LayerStrategy, **fields: object) -> LayerShape:
    """The shape in which the layer called ``name`` is run."""
    read = (TowerInputShape(SOURCE_TOKENS, HIDDEN, True),) if name in READERS else ()
    tokens = 17 if name == "patches and class" else TOKENS
    plain = {"before": None, "batch": BATCH, "seq_len": tokens, "dtype": "bf16", "sources": read}
    shape = {"strategy": strategy, "stack": STACKS[0], **plain, **fields}
    return LayerShape(**shape)  # type: ignore[arg-type]


def cases() -> list[tuple[str, LayerShape]]:
    """Every layer under every split that is legal for it, with every stack."""
    found = []
    for name, strategy, used in itertools.product(LAYERS, SPLITS, STACKS):
        shape = shape_of(name, strategy, stack=used)
        if layer_violation(LAYERS[name], strategy, 2, 2, shape.seq_len) is None:
            found.append((name, shape))
    return found
