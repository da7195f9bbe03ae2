"""Layer kinds in distinguishing words."""

from __future__ import annotations

from ...spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
    PatchLayer,
    ProjectorLayer,
)
from ...spec.model.mixers import (
    Attention,
    DeltaRule,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)
from ...spec.model.model_spec import FeedForward, Mlp


def layer_name(layer: Layer) -> str:
    """Such as ``block: attention 64/8, swiglu 28672`` or ``head: vocab 128256``."""
    return ": ".join(part for part in (layer.kind.replace("_", "-"), _sizes(layer)) if part)


def _sizes(layer: Layer) -> str:
    if isinstance(layer, BlockLayer):
        return _block(layer)
    if isinstance(layer, MultiTokenLayer):
        return _block(layer.block)
    if isinstance(layer, (EmbeddingLayer, HeadLayer)):
        return f"vocab {layer.vocab}"
    if isinstance(layer, PatchLayer):
        return f"{layer.patch} x {layer.patch} of {layer.image} x {layer.image}"
    if isinstance(layer, ClassifierLayer):
        return f"{layer.classes} classes"
    return f"to width {layer.out}" if isinstance(layer, ProjectorLayer) else ""


def _block(block: BlockLayer) -> str:
    parts = [_mixer(block.attention), _feed_forward(block.mlp)]
    if block.cross_attention is not None:
        parts.insert(1, "cross-attention")
    if block.parallel:
        parts.append("in parallel")
    return ", ".join(part for part in parts if part)


def _mixer(mixer: Mixer | None) -> str:
    if isinstance(mixer, Attention):
        mask = "" if mixer.mask == "causal" else "unmasked "
        window = "" if mixer.window is None else f" window {mixer.window}"
        chunk = "" if mixer.chunk is None else f" chunks of {mixer.chunk}"
        return f"{mask}attention {mixer.heads}/{mixer.kv_heads}{window}{chunk}"
    if isinstance(mixer, LatentAttention):
        chosen = "" if mixer.indexer is None else f" to {mixer.indexer.topk} keys"
        return f"latent attention {mixer.heads}{chosen}"
    if isinstance(mixer, StateSpace):
        return f"state space {mixer.heads}"
    if isinstance(mixer, DeltaRule):
        return f"delta rule {mixer.value_heads}/{mixer.key_heads}"
    if isinstance(mixer, KimiDeltaAttention):
        return f"Kimi delta attention {mixer.heads}"
    if isinstance(mixer, LightningAttention):
        return f"lightning attention {mixer.heads}"
    if isinstance(mixer, ShortConvolution):
        return f"short convolution {mixer.channels}"
    if isinstance(mixer, ParallelMixers):
        return f"{_mixer(mixer.attention)} beside {_mixer(mixer.state_space)}"
    return ""


def _feed_forward(part: FeedForward | None) -> str:
    if part is None:
        return ""
    if isinstance(part, Mlp):
        return f"{part.activation} {part.ffn}"
    shared = f" + shared {part.shared_ffn}" if part.shared_ffn else ""
    return f"experts {part.topk} of {part.experts} x {part.ffn}{shared}"
