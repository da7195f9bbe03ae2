"""Named models as a JSON document with sizes and sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from ...datasets.models.load import DEFAULT_MODEL, Preset, load_model, presets
from ...spec.choices import RUN_MOMENTS
from ...spec.codec import to_document
from ...spec.model.layer_parameters import layer_elements
from ...spec.model.model_spec import (
    Attention,
    BlockLayer,
    DeltaRule,
    EmbeddingLayer,
    HeadLayer,
    KimiDeltaAttention,
    LatentAttention,
    Layer,
    LightningAttention,
    Mlp,
    ModelSpec,
    Moe,
    ParallelMixers,
    PatchLayer,
    ShortConvolution,
    StateSpace,
    Tower,
)
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.training import target_names
from ...spec.workload.workload import DtypeRecord
from .layer_names import layer_name

SEQ_LEN = 4096
"""Rows counted of a position table that is as long as the workload's sequence."""


def models_document(name: str | None = None) -> dict[str, Any]:
    """``default``, and every named model: sizes, source, omissions.

    Args:
        name: describe this model instead: a preset, a file or folder, a cached hub name.

    Raises:
        InputError: no such model.
    """
    if name is not None:
        return _model_document(name)
    return {"default": DEFAULT_MODEL, "models": [_preset_row(item) for item in presets().values()]}


def _preset_row(item: Preset) -> dict[str, Any]:
    return {
        "name": item.name,
        **_sizes(item.model),
        "source": item.source,
        "left_out": list(item.left_out),
        "simplified": list(item.simplified),
    }


def _sizes(model: ModelSpec) -> dict[str, Any]:
    return {
        "kind": model_kind(model),
        "parameters": model.param_count(SEQ_LEN),
        "active_parameters": model.active_param_count(SEQ_LEN),
        "layers": model.block_count,
        "hidden": model.towers[-1].layers[0].layer.hidden,
        "vocab": model.vocab,
        "tie_embeddings": model.tie_embeddings,
        **model_parts(model),
    }


def _model_document(name: str) -> dict[str, Any]:
    """One model: its sizes, kinds of layers, bytes, adapters and assumptions."""
    model, assumptions = load_model(name, "NAME")
    preset = presets().get(model.name)
    known = preset is not None and preset.model == model
    row = _preset_row(preset) if known and preset is not None else {"name": model.name}
    count = model.param_count(SEQ_LEN)
    states = DtypeRecord()
    moments = [states.moments] * RUN_MOMENTS["adamw"]
    kept = (states.param, states.gradient, states.master, *moments)
    return {
        **_sizes(model),
        **row,
        "layer_kinds": _layer_kinds(model),
        "weights_bytes": count * DTYPE_BYTES[states.param],
        "training_bytes": count * sum(DTYPE_BYTES[dtype] for dtype in kept),
        "adapter_targets": list(target_names(model)),
        "assumptions": [asdict(note) for note in assumptions],
        "spec": to_document(model),
    }


def _layer_kinds(model: ModelSpec) -> list[dict[str, Any]]:
    """Each kind of layer of each tower: how many, and the parameters of one."""
    rows = []
    for tower in model.towers:
        for layer, count in Counter(tower.expand()).items():
            shared = _shared_table(model, tower, layer)
            rows.append(
                {
                    "tower": tower.name,
                    "layer": layer_name(layer) + (" (shared table)" if shared else ""),
                    "count": count,
                    "parameters": layer_elements(layer, SEQ_LEN) - shared,
                }
            )
    return rows


def _shared_table(model: ModelSpec, tower: Tower, layer: Layer) -> int:
    """Elements of the table that a layer shares with an earlier one."""
    tied = isinstance(layer, HeadLayer) and model.tie_embeddings
    later = isinstance(layer, EmbeddingLayer) and tower is not model.towers[0]
    if isinstance(layer, (HeadLayer, EmbeddingLayer)) and (
        tied or (later and model.shared_embedding)
    ):
        return layer.vocab * layer.hidden
    return 0


RECURRENT = (
    StateSpace,
    DeltaRule,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
    ParallelMixers,
)


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
