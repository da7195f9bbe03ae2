"""Dense decoder blocks: the layers that the bundled executor runs."""

from __future__ import annotations

from .errors import NotBuiltError
from .feed_forward import Mlp
from .layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from .mixers import Attention
from .model import ModelSpec

PLAIN_ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")


def dense_parts(block: BlockLayer) -> tuple[Attention, Mlp]:
    """Attention and MLP of a block that the executor runs.

    Raises:
        NotBuiltError: a block of another kind.
    """
    attention, mlp = block.attention, block.mlp
    if reason := block_reason(block):
        raise NotBuiltError(reason, "run a dense decoder")
    if not isinstance(attention, Attention) or not isinstance(mlp, Mlp):
        raise RuntimeError("block_reason let another kind through")
    return attention, mlp


def block_reason(block: BlockLayer) -> str | None:
    """Why the executor cannot run a block; None if it can."""
    attention, mlp = block.attention, block.mlp
    if not isinstance(attention, Attention):
        return f"{getattr(attention, 'kind', 'no')} attention is planned but not run yet"
    if not isinstance(mlp, Mlp):
        return f"{getattr(mlp, 'kind', 'no')} feed-forward is planned but not run yet"
    if mlp.activation not in PLAIN_ACTIVATIONS:
        return f"activation {mlp.activation} is planned but not run yet"
    plain = Attention(
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        rotary=attention.rotary,
        rope_theta=attention.rope_theta,
        qkv_bias=attention.qkv_bias,
        out_bias=attention.out_bias,
        qk_norm=attention.qk_norm,
        window=attention.window,
    )
    if attention != plain or block.cross_attention is not None:
        return "attention other than causal self-attention is planned but not run yet"
    if block.norm_placement != "pre" or block.parallel:
        return "blocks other than pre-norm in series are planned but not run yet"
    return None


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
