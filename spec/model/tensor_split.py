"""Sizes of a layer that a tensor-parallel degree must divide."""

from __future__ import annotations

from .feed_forward import FeedForward, Moe
from .layers import BlockLayer, Layer, MultiTokenLayer, ProjectorLayer
from .mixers import (
    DeltaRule,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)


def split_sizes(layer: Layer) -> dict[str, int]:
    """The sizes by name.

    Empty for a layer that any degree splits or leaves replicated.
    """
    if isinstance(layer, MultiTokenLayer):
        return split_sizes(layer.block)
    if isinstance(layer, ProjectorLayer):
        return {"inner": layer.inner} if layer.inner else {}
    if not isinstance(layer, BlockLayer):
        return {}
    sizes = _mixer_sizes(layer.attention) if layer.attention is not None else {}
    if layer.cross_attention is not None:
        cross = _mixer_sizes(layer.cross_attention)
        sizes |= {f"cross {name}": size for name, size in cross.items()}
    return sizes | (_feed_forward_sizes(layer.mlp) if layer.mlp is not None else {})


def head_sizes(layer: Layer) -> dict[str, int]:
    """Numbers of heads of a layer's token mixer by name.

    Empty if it has none.
    """
    if isinstance(layer, MultiTokenLayer):
        return head_sizes(layer.block)
    if not isinstance(layer, BlockLayer) or layer.attention is None:
        return {}
    return _mixer_sizes(layer.attention)


def _mixer_sizes(mixer: Mixer) -> dict[str, int]:
    if isinstance(mixer, (LatentAttention, LightningAttention, KimiDeltaAttention)):
        return {"heads": mixer.heads}
    if isinstance(mixer, StateSpace):
        return {"heads": mixer.heads, "groups": mixer.groups}
    if isinstance(mixer, DeltaRule):
        return {"key_heads": mixer.key_heads, "value_heads": mixer.value_heads}
    if isinstance(mixer, ShortConvolution):
        return {"channels": mixer.channels}
    if isinstance(mixer, ParallelMixers):
        state = {f"state {name}": size for name, size in _mixer_sizes(mixer.state_space).items()}
        return _mixer_sizes(mixer.attention) | state
    return {"heads": mixer.heads, "kv_heads": mixer.kv_heads}


def _feed_forward_sizes(part: FeedForward) -> dict[str, int]:
    """Experts have a degree of their own.

    Shared experts are split as the block is.
    """
    if isinstance(part, Moe):
        return {"shared_ffn": part.shared_ffn} if part.shared_ffn else {}
    return {"ffn": part.ffn}
