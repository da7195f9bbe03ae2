"""Reasons why the executor does not run a layer, model or combination.

It runs decoders, encoders (BERT, ViT) and encoder-decoders (T5) of attention and MLPs or experts.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

from ..model.experts import experts_of
from ..model.feed_forward import Mlp, Moe
from ..model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    NormLayer,
    PatchLayer,
)
from ..model.mixers import Attention, LatentAttention
from ..model.model_spec import ModelSpec
from ..model.towers import has_cross_attention
from ..parallel.batch_partition import batch_partition

if TYPE_CHECKING:
    from ..plan.plan import Plan
    from ..strategy import LayerStrategy
    from ..workload.workload import Workload

RUN_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "swiglu", "geglu_tanh")
EXPERT_ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")
RUN_MODELS = "a decoder, an encoder or both, of attention and MLPs or experts"
"""Models that run, as errors name them."""


def unsupported_block(block: BlockLayer) -> str | None:
    """Reason why the executor cannot run a block, or None."""
    mixer, mlp = block.attention, block.mlp
    if not isinstance(mixer, (Attention, LatentAttention)):
        return f"{getattr(mixer, 'kind', 'no')} attention is planned but not run yet"
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
        return "keys that an indexer chooses: planned but not run yet"
    if isinstance(mixer, LatentAttention) and not mixer.rotary:
        return "latent attention without positions is planned but not run yet"
    if block.norm_placement == "stream":
        return "norms of the residual stream itself are planned but not run yet"
    if mlp is None:
        return "no feed-forward is planned but not run yet"
    if isinstance(mlp, Moe) and (reason := unsupported_experts(mlp)):
        return reason
    if isinstance(mlp, Mlp) and mlp.activation not in RUN_ACTIVATIONS:
        return f"activation {mlp.activation} is planned but not run yet"
    reason = _unsupported_attention(mixer) if isinstance(mixer, Attention) else None
    return reason or _unsupported_cross_attention(block)


def _unsupported_attention(attention: Attention) -> str | None:
    for name, used in (
        ("a part of each head turned", attention.rotary_dim is not None),
        ("attention sinks", attention.sinks),
        ("a gate on attention's output", attention.output_gate),
        ("capped scores", attention.softcap is not None),
        ("norms of heads without weights", not attention.qk_norm_weight),
        ("norms of values", attention.value_norm),
        ("keys that are values too", attention.keys_as_values),
    ):
        if used:
            return f"{name}: planned but not run yet"
    if attention.relative_buckets and attention.shared_bias:
        return "a table of relative positions beside a shared bias: not run"
    return None


def _unsupported_cross_attention(block: BlockLayer) -> str | None:
    cross = block.cross_attention
    if cross is None:
        return None
    if cross.rotary or cross.qk_norm or cross.relative_buckets or cross.shared_bias:
        return "cross-attention with positions or norms of its own is planned but not run yet"
    if block.norm_placement in ("after", "sandwich"):
        return f"cross-attention with {block.norm_placement} norms is planned but not run yet"
    return _unsupported_attention(cross)


def unsupported_experts(moe: Moe) -> str | None:
    """Reason why the executor cannot run a mixture of experts, or None."""
    if moe.activation not in EXPERT_ACTIVATIONS:
        return f"activation {moe.activation} of experts is planned but not run yet"
    if moe.weigh == "inputs":
        return "experts whose inputs are weighed are planned but not run yet"
    return None


def unsupported_layer(layer: Layer) -> str | None:
    """Reason why the executor cannot run a layer, or None."""
    if isinstance(layer, BlockLayer):
        return unsupported_block(layer)
    if isinstance(layer, PatchLayer) and layer.frames > 1:
        return "patches of several frames are planned but not run yet"
    if isinstance(layer, (EmbeddingLayer, HeadLayer, PatchLayer, ClassifierLayer, NormLayer)):
        return None
    return f"a {layer.kind} layer is planned but not run yet"


def unsupported_model(model: ModelSpec, seq_len: int) -> str | None:
    """Reason for not running a model on ``seq_len`` tokens, or None."""
    if reason := unsupported_towers(model):
        return reason
    for layer in model.kinds():
        if reason := unsupported_layer(layer) or unsupported_window(layer, seq_len):
            return reason
    return None


def unsupported_towers(model: ModelSpec) -> str | None:
    """Reason why the executor cannot run a model's towers, or None."""
    if model.shared_embedding and not model.tie_embeddings:
        return "embeddings that are one but not tied to the head are planned but not run yet"
    if len(model.towers) == 1:
        return None
    reads_tokens = all(isinstance(t.layers[0].layer, EmbeddingLayer) for t in model.towers)
    reader = any(has_cross_attention(layer) for layer in model.towers[-1].expand())
    if len(model.towers) == 2 and reads_tokens and reader:
        return None
    return "towers other than an encoder and its decoder of tokens are planned but not run yet"


def unsupported_strategy(
    model: ModelSpec, strategy: LayerStrategy, workload: Workload
) -> str | None:
    """Reason for not training a model with a strategy, or None."""
    if strategy.weight_split > 1 and _norms_all_heads(model):
        tp = strategy.weight_split
        return f"tp {tp} over norms of all heads together is planned but not run yet; use tp 1"
    if strategy.sequence_split > 1 and (reason := _routes_sequences(model)):
        return f"{reason} where ranks split a sequence: planned but not run yet; use sp none, cp 1"
    if _is_one_plain_tower(model):
        return None
    model_text = "in a model of two towers or of learned relative positions"
    if strategy.cp > 1:
        return f"cp {strategy.cp} {model_text} is planned but not run yet; use cp 1"
    if strategy.ulysses:
        return (
            f"Ulysses {model_text} is planned but not run yet; use Megatron's sequence parallelism"
        )
    if workload.adapters is not None:
        return f"adapters {model_text} are planned but not run yet; train full"
    return None


@lru_cache(maxsize=256)
def _routes_sequences(model: ModelSpec) -> str:
    """Parts of routers that read whole sequences, as words; empty for none."""
    mixtures = [moe for layer in model.kinds() if (moe := experts_of(layer)) is not None]
    if any(moe.gate == "soft" for moe in mixtures):
        return "SoftMoE"
    by_sequence = any(moe.balance and moe.balance.per == "sequence" for moe in mixtures)
    return "an auxiliary loss per sequence" if by_sequence else ""


@lru_cache(maxsize=256)
def _norms_all_heads(model: ModelSpec) -> bool:
    mixers = (layer.attention for layer in model.kinds() if isinstance(layer, BlockLayer))
    return any(isinstance(x, Attention) and x.qk_norm_joint for x in mixers)


@lru_cache(maxsize=256)
def _is_one_plain_tower(model: ModelSpec) -> bool:
    mixers = (layer.attention for layer in model.kinds() if isinstance(layer, BlockLayer))
    learned_bias = any(
        isinstance(x, Attention) and (x.relative_buckets or x.shared_bias) for x in mixers
    )
    return len(model.towers) == 1 and not learned_bias


def unsupported_combination(plan: Plan) -> str | None:
    """Reason for not training a plan's model with its strategies, or None."""
    for strategy in dict.fromkeys(plan.layer_strategies()):
        if reason := unsupported_strategy(plan.model, strategy, plan.workload):
            return reason
    return _unsupported_capacity(plan)


def _unsupported_capacity(plan: Plan) -> str | None:
    """Reason why ranks of one stage would fill rows of different capacity, or None."""
    mixtures = (experts_of(layer) for layer in plan.model.kinds())
    if not any(moe is not None and moe.fills_rows for moe in mixtures):
        return None
    samples = plan.program.micro_batch_samples
    for stage, strategy in itertools.product(plan.program.stages, set(plan.layer_strategies())):
        sizes = {part.size for part in batch_partition(stage, strategy, samples)}
        if len(stage.devices) > 1 and len(sizes) > 1:
            return "experts of a fixed capacity on ranks with other batch shares: not run yet"
    return None


def unsupported_layer_together(layer: Layer, workload: Workload) -> str | None:
    """Reason for not training a layer under a workload, or None.

    Both may run on their own: adapters stand beside projections of one matrix.
    """
    if not isinstance(layer, BlockLayer):
        return None
    if workload.lengths is not None and (reason := _unsupported_documents(layer)):
        return reason
    if isinstance(layer.mlp, Moe) and workload.adapters is not None:
        for name in workload.adapters.targets:
            if name.startswith("experts_"):
                return f"lora beside {name}, the matrices of all experts, is not built; freeze them"
    return None


def _unsupported_documents(block: BlockLayer) -> str | None:
    mixer = block.attention
    if isinstance(mixer, Attention) and mixer.mask == "causal" and not mixer.relative_buckets:
        return None
    return "documents' lengths with other than plain causal attention: planned but not run yet"


def unsupported_together(plan: Plan) -> str | None:
    """Reason for not training a plan's layers under its workload, or None."""
    for layer in plan.model.kinds():
        if reason := unsupported_layer_together(layer, plan.workload):
            return reason
    return None


def unsupported_window(layer: Layer, seq_len: int) -> str | None:
    """Reason for not running a layer on ``seq_len`` tokens, or None."""
    mixer = layer.attention if isinstance(layer, BlockLayer) else None
    window = mixer.window if isinstance(mixer, Attention) else None
    if window is not None and window < seq_len:
        return f"a sliding window of {window} in {seq_len} tokens is planned but not run yet"
    chunk = mixer.chunk if isinstance(mixer, Attention) else None
    if chunk is not None and chunk < seq_len:
        return f"attention in chunks of {chunk} of {seq_len} tokens is planned but not run yet"
    return None


__all__ = [
    "RUN_ACTIVATIONS",
    "RUN_MODELS",
    "unsupported_block",
    "unsupported_combination",
    "unsupported_experts",
    "unsupported_layer",
    "unsupported_layer_together",
    "unsupported_model",
    "unsupported_strategy",
    "unsupported_together",
    "unsupported_towers",
    "unsupported_window",
]
