"""The layers that the bundled executor runs, and which of them are dense."""

from __future__ import annotations

from .errors import NotBuiltError
from .expert_runs import mixture_run_reason
from .feed_forward import FeedForward, Mlp, Moe
from .layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from .mixers import Attention, LatentAttention, Mixer
from .model import ModelSpec

PLAIN_ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")


def dense_parts(block: BlockLayer) -> tuple[Attention, Mlp]:
    """Attention and MLP of a dense block that the executor runs.

    Raises:
        NotBuiltError: a block of another kind.
    """
    attention, mlp = block.attention, block.mlp
    if reason := dense_reason(block):
        raise NotBuiltError(reason, "run a dense decoder")
    if not isinstance(attention, Attention) or not isinstance(mlp, Mlp):
        raise RuntimeError("dense_reason let another kind through")
    return attention, mlp


def dense_reason(block: BlockLayer) -> str | None:
    """Why a block is not a dense one that the executor runs; None if it is."""
    if not isinstance(block.attention, Attention):
        return f"{getattr(block.attention, 'kind', 'no')} attention is no plain attention"
    if not isinstance(block.mlp, Mlp):
        return f"{getattr(block.mlp, 'kind', 'no')} feed-forward is no MLP"
    return block_reason(block)


def run_parts(block: BlockLayer) -> tuple[Mixer, FeedForward]:
    """Token mixer and feed-forward part of a block that the executor runs.

    Raises:
        NotBuiltError: a block of another kind.
    """
    if reason := block_reason(block):
        raise NotBuiltError(reason, "run a decoder of attention and MLPs or experts")
    if block.attention is None or block.mlp is None:
        raise RuntimeError("block_reason let a block without one of its parts through")
    return block.attention, block.mlp


def block_reason(block: BlockLayer) -> str | None:
    """Why the executor cannot run a block; None if it can."""
    mixer, mlp = block.attention, block.mlp
    if not isinstance(mixer, (Attention, LatentAttention)):
        return f"{getattr(mixer, 'kind', 'no')} attention is planned but not run yet"
    if mlp is None:
        return "no feed-forward is planned but not run yet"
    if mlp.activation not in PLAIN_ACTIVATIONS:
        return f"activation {mlp.activation} is planned but not run yet"
    if not _is_plain(mixer) or block.cross_attention is not None:
        return "attention other than causal self-attention is planned but not run yet"
    if isinstance(mlp, Moe) and (reason := mixture_run_reason(mlp)):
        return reason
    if block.norm_placement != "pre" or block.parallel:
        return "blocks other than pre-norm in series are planned but not run yet"
    return None


def _is_plain(mixer: Attention | LatentAttention) -> bool:
    """Whether attention is causal and of a form that is run."""
    if isinstance(mixer, LatentAttention):
        return True
    return mixer == Attention(
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        head_dim=mixer.head_dim,
        rotary=mixer.rotary,
        rope_theta=mixer.rope_theta,
        qkv_bias=mixer.qkv_bias,
        out_bias=mixer.out_bias,
        qk_norm=mixer.qk_norm,
        window=mixer.window,
    )


def layer_run_reason(layer: Layer) -> str | None:
    """Why the executor cannot run a layer; None if it can."""
    if isinstance(layer, BlockLayer):
        return block_reason(layer)
    if isinstance(layer, EmbeddingLayer) and not (layer.token_types or layer.norm):
        return None
    if isinstance(layer, HeadLayer) and layer.norm and not (layer.transform or layer.bias):
        return None if layer.softcap is None else "capped logits are planned but not run yet"
    return f"a {layer.kind} layer of this form is planned but not run yet"


def model_run_reason(model: ModelSpec, seq_len: int) -> str | None:
    """Why the executor cannot run a model on sequences of this length; None if it can."""
    if reason := towers_run_reason(model):
        return reason
    for layer in model.kinds():
        if reason := layer_run_reason(layer) or window_run_reason(layer, seq_len):
            return reason
    return None


def towers_run_reason(model: ModelSpec) -> str | None:
    """Why the executor cannot run a model's towers; None if there is one."""
    if len(model.towers) > 1:
        return "a model of several towers is planned but not run yet"
    return None


def window_run_reason(layer: Layer, seq_len: int) -> str | None:
    """Why the executor cannot run a layer on sequences of this length; None if it can."""
    mixer = layer.attention if isinstance(layer, BlockLayer) else None
    window = mixer.window if isinstance(mixer, Attention) else None
    if window is not None and window < seq_len:
        return f"a sliding window of {window} in {seq_len} tokens is planned but not run yet"
    return None
