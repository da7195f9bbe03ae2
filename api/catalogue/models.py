"""Named models as a JSON document with sizes and sources."""

from __future__ import annotations

from typing import Any

from ...datasets.models.load import DEFAULT_MODEL, presets
from ...spec.model.model_spec import (
    Attention,
    BlockLayer,
    DeltaRule,
    LatentAttention,
    Mlp,
    ModelSpec,
    Moe,
    ParallelMixers,
    PatchLayer,
    ShortConvolution,
    StateSpace,
)


def models_document() -> dict[str, Any]:
    """``default``, and every named model: sizes, source, omissions."""
    return {
        "default": DEFAULT_MODEL,
        "models": [
            {
                "name": item.name,
                "kind": model_kind(item.model),
                "parameters": item.model.param_count(),
                "active_parameters": item.model.active_param_count(),
                "layers": item.model.block_count,
                "hidden": item.model.towers[-1].layers[0].layer.hidden,
                "vocab": item.model.vocab,
                "tie_embeddings": item.model.tie_embeddings,
                **model_parts(item.model),
                "source": item.source,
                "left_out": list(item.left_out),
                "simplified": list(item.simplified),
            }
            for item in presets().values()
        ],
    }


RECURRENT = (StateSpace, DeltaRule, ShortConvolution, ParallelMixers)


def model_kind(model: ModelSpec) -> str:
    """``dense``, ``experts``, ``hybrid``, ``encoder``, ``encoder-decoder`` or ``image and text``.

    A hybrid has layers that mix tokens other than by attention.
    """
    if len(model.towers) > 1:
        images = isinstance(model.towers[0].layers[0].layer, PatchLayer)
        return "image and text" if images else "encoder-decoder"
    blocks = _blocks(model)
    mixers = [block.attention for block in blocks]
    if any(isinstance(mixer, RECURRENT) for mixer in mixers):
        return "hybrid"
    if any(isinstance(mixer, Attention) and mixer.mask == "full" for mixer in mixers):
        return "encoder"
    return "experts" if any(isinstance(block.mlp, Moe) for block in blocks) else "dense"


def model_parts(model: ModelSpec) -> dict[str, Any]:
    """Sizes of the last tower's first attention, MLP and experts.

    Null where there is none.
    """
    blocks = _blocks(model)
    mixers = [b.attention for b in blocks if isinstance(b.attention, (Attention, LatentAttention))]
    plain = next((b.mlp for b in blocks if isinstance(b.mlp, Mlp)), None)
    moe = next((b.mlp for b in blocks if isinstance(b.mlp, Moe)), None)
    used = plain or moe
    return {
        **_heads(mixers[0] if mixers else None),
        "ffn": plain and plain.ffn,
        "activation": used and used.activation,
        "experts": moe and moe.experts,
        "topk": moe and moe.topk,
        "expert_ffn": moe and moe.ffn,
        "shared_ffn": moe and moe.shared_ffn,
    }


def _blocks(model: ModelSpec) -> list[BlockLayer]:
    layers = (run.layer for run in model.towers[-1].layers)
    return [layer for layer in layers if isinstance(layer, BlockLayer)]


def _heads(mixer: Attention | LatentAttention | None) -> dict[str, int | None]:
    if isinstance(mixer, Attention):
        return {"heads": mixer.heads, "kv_heads": mixer.kv_heads, "head_dim": mixer.head_dim}
    if isinstance(mixer, LatentAttention):
        return {"heads": mixer.heads, "kv_heads": mixer.heads, "head_dim": mixer.key_dim}
    return {"heads": None, "kv_heads": None, "head_dim": None}
