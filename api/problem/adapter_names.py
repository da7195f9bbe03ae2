"""Linear layers by PEFT's names: those of modules in transformers and in torchtune.

PEFT adapts every module whose name ends in a target. A name here is one of ours, or the last part
of a module's (``q_proj``), with the part before it where that tells two apart (``mlp.c_proj``).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...spec.model.mixers import Attention, DeltaRule, Mixer, StateSpace
from ...spec.model.model_spec import BlockLayer, ModelSpec

ALL_LINEAR = ("all", "all-linear")
"""Every linear layer of the blocks, ours and PEFT's word for it."""
QKV = ("query", "key", "value")
ATTENTION = ("query", "key", "value", "output")
ENDINGS: dict[str, tuple[str, ...]] = {
    "q_proj": ("query",),
    "k_proj": ("key",),
    "v_proj": ("value",),
    "o_proj": ("output",),
    "out_proj": ("output",),
    "output_proj": ("output",),
    "dense": ("output",),
    "q": ("query", "cross_query"),
    "k": ("key", "cross_key"),
    "v": ("value", "cross_value"),
    "o": ("output", "cross_output"),
    "q_a_proj": ("query_down",),
    "q_b_proj": ("query_up",),
    "kv_a_proj_with_mqa": ("kv_down",),
    "kv_b_proj": ("kv_up",),
    "gate_proj": ("gate", "shared_gate"),
    "up_proj": ("up", "shared_up"),
    "down_proj": ("down", "shared_down"),
    "w1": ("gate",),
    "w2": ("down",),
    "w3": ("up",),
    "wi": ("up",),
    "wi_0": ("gate",),
    "wi_1": ("up",),
    "wo": ("down",),
    "fc1": ("up",),
    "fc2": ("down",),
    "c_fc": ("up",),
    "c_proj": ("output", "down"),
    "dense_h_to_4h": ("up",),
    "dense_4h_to_h": ("down",),
    "c_attn": QKV,
    "qkv_proj": QKV,
    "query_key_value": QKV,
    "Wqkv": QKV,
    "gate_up_proj": ("gate", "up"),
    "in_proj": ("gate", "mixed", "step"),
    "in_proj_qkvz": ("mixed", "gate"),
    "in_proj_ba": ("rates",),
}
"""The last part of a module's name, and the projections that it holds here."""
FUSED = frozenset(
    ("c_attn", "qkv_proj", "query_key_value", "Wqkv", "gate_up_proj", "in_proj", "in_proj_qkvz")
)
"""Modules that hold several projections in one matrix, with one adapter in PEFT."""
PLACES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("self_attn", "attn", "attention", "SelfAttention"), ATTENTION),
    "EncDecAttention": ("cross_query", "cross_key", "cross_value", "cross_output"),
    **dict.fromkeys(("mlp", "feed_forward", "DenseReluDense"), ("gate", "up", "down")),
    **dict.fromkeys(
        ("shared_expert", "shared_experts"), ("shared_gate", "shared_up", "shared_down")
    ),
}
"""The part before it, and the projections of that place."""
OF_RECURRENT_MIXERS = frozenset(("in_proj", "in_proj_qkvz"))
"""Modules that hold a recurrent mixer's ``gate``, which is not an MLP's."""


def targets_called(name: str, model: ModelSpec, targets: Iterable[str]) -> tuple[str, ...]:
    """The linear layers of ``targets`` that ``name`` means in ``model``; none if it is no name."""
    known = tuple(targets)
    if name in known:
        return (name,)
    *before, ending = name.split(".")
    slots = ENDINGS.get(ending, ())
    if ending == "dense" and _is_encoder(model):  # BERT's and ViT's name of three modules
        slots = ("output", "up", "down")
    if before and before[-1] in PLACES:
        slots = tuple(slot for slot in slots if slot in PLACES[before[-1]])
    if _has_recurrent_mixers(model) and ending not in OF_RECURRENT_MIXERS:
        slots = tuple(slot for slot in slots if slot != "gate")
    found = tuple(slot for slot in slots if slot in known)
    return () if is_fused(name) and found != slots else found


def names_for(model: ModelSpec, targets: Iterable[str]) -> list[str]:
    """PEFT's names that mean something among ``targets``, for errors."""
    known = tuple(targets)
    return [name for name in ENDINGS if targets_called(name, model, known)]


def is_fused(name: str) -> bool:
    """True if PEFT has one adapter where this package has one a projection."""
    return name.rpartition(".")[2] in FUSED


def _mixers(model: ModelSpec) -> list[Mixer | None]:
    return [layer.attention for layer in model.kinds() if isinstance(layer, BlockLayer)]


def _has_recurrent_mixers(model: ModelSpec) -> bool:
    return any(isinstance(mixer, (DeltaRule, StateSpace)) for mixer in _mixers(model))


def _is_encoder(model: ModelSpec) -> bool:
    if len(model.towers) > 1:
        return False
    return any(isinstance(mixer, Attention) and mixer.mask == "full" for mixer in _mixers(model))
