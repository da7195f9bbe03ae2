"""Dense decoder blocks, which compilation takes, and parallel ones, which share collectives."""

from __future__ import annotations

from ..errors import NotBuiltError
from .feed_forward import Mlp
from .layers import BlockLayer
from .mixers import Attention

PLAIN_ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")


def dense_parts(block: BlockLayer) -> tuple[Attention, Mlp]:
    """Attention and MLP of a dense decoder block.

    Raises:
        NotBuiltError: a block of another kind.
    """
    attention, mlp = block.attention, block.mlp
    if reason := dense_block_violation(block):
        raise NotBuiltError(reason, "run a dense decoder")
    if not isinstance(attention, Attention) or not isinstance(mlp, Mlp):
        raise RuntimeError("dense_block_violation let another kind through")
    return attention, mlp


def dense_block_violation(block: BlockLayer) -> str | None:
    """Reason why a block is no dense decoder block, or None."""
    attention, mlp = block.attention, block.mlp
    if not isinstance(attention, Attention):
        return f"{getattr(attention, 'kind', 'no')} attention is no plain attention"
    if not isinstance(mlp, Mlp):
        return f"{getattr(mlp, 'kind', 'no')} feed-forward is no MLP"
    if mlp.activation not in PLAIN_ACTIVATIONS:
        return f"activation {mlp.activation} is none of {', '.join(PLAIN_ACTIVATIONS)}"
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
        return "attention other than causal self-attention"
    if block.norm_placement != "pre" or block.parallel:
        return "blocks other than pre-norm in series"
    return None


def shares_collectives(block: BlockLayer) -> bool:
    """True if tensor-parallel attention and MLP have one gather and one scatter each way.

    Both read one normalized input and are added in one sum, which is made before the scatter.
    """
    attention = block.attention
    if not isinstance(attention, Attention) or not isinstance(block.mlp, Mlp):
        return False
    plain = not (attention.relative_buckets or attention.shared_bias or block.cross_attention)
    return block.parallel and block.shared_norm and plain


__all__ = ["PLAIN_ACTIVATIONS", "dense_block_violation", "dense_parts", "shares_collectives"]
