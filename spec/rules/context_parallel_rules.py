"""Rules for sequence splits inside attention: rings and Ulysses.

A ring (cp) splits each sequence into 2·cp pieces, of which rank i holds piece i and piece 2·cp - 1
- i, so that causal work is even (Llama 3, arXiv:2407.21783, section 3.3.2). With Ulysses
(arXiv:2309.14509) the tp ranks hold consecutive tokens of the ring rank's and exchange them for
heads.
"""

from __future__ import annotations

from ..model.layers import BlockLayer, ClassifierLayer, Layer, MultiTokenLayer, ProjectorLayer
from ..model.mixers import (
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
from ..model.tensor_split import head_sizes
from ..strategy import LayerStrategy

RECURRENT = (
    StateSpace,
    DeltaRule,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
    ParallelMixers,
)


def context_parallel_violation(layer: Layer, strategy: LayerStrategy, seq_len: int) -> str | None:
    """Reason why ``layer`` may not have its sequence split so, or None."""
    if strategy.sequence_parallel == "ulysses" and strategy.tp == 1:
        return "sequence_parallel ulysses needs tp > 1"
    if strategy.cp == 1 and not strategy.ulysses:
        return None
    return (
        _tokens_violation(strategy, seq_len)
        or _layer_violation(layer, strategy, seq_len)
        or _heads_violation(layer, strategy)
    )


def _tokens_violation(strategy: LayerStrategy, seq_len: int) -> str | None:
    cp = strategy.cp
    if cp > 1 and seq_len % (2 * cp):
        return f"cp {cp} needs tokens in multiples of {2 * cp}, two pieces a rank, not {seq_len}"
    local = seq_len // cp
    if strategy.layout[2] and local % strategy.tp:
        return f"tp {strategy.tp} does not divide the {local} tokens that cp {cp} leaves a rank"
    return None


def _layer_violation(layer: Layer, strategy: LayerStrategy, seq_len: int) -> str | None:
    mode = f"cp {strategy.cp}" if strategy.cp > 1 else "ulysses"
    if isinstance(layer, MultiTokenLayer):
        return _layer_violation(layer.block, strategy, seq_len)
    if isinstance(layer, ClassifierLayer):
        return f"{mode} leaves the token that a classifier reads to one rank"
    if isinstance(layer, ProjectorLayer) and layer.tokens_per_output > 1:
        return f"{mode} would cut the neighbouring tokens that a projector merges"
    if not isinstance(layer, BlockLayer):
        return None
    if layer.cross_attention is not None:
        return f"{mode} with cross-attention is not built yet"
    return _mixer_violation(layer.attention, strategy, seq_len) if layer.attention else None


def _mixer_violation(mixer: Mixer, strategy: LayerStrategy, seq_len: int) -> str | None:
    ring = strategy.cp > 1
    mode = f"cp {strategy.cp}" if ring else "ulysses"
    if isinstance(mixer, RECURRENT):
        return f"{mode} would split the state that a {mixer.kind} mixer hands on along the sequence"
    if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
        return f"{mode} with keys that an indexer chooses is not built yet"
    if not isinstance(mixer, Attention):
        return None
    if mixer.relative_buckets or mixer.shared_bias:
        return f"{mode} with learned relative positions is not built yet"
    if ring and mixer.window is not None and mixer.window < seq_len:
        return f"{mode} with a window of {mixer.window} tokens is not built yet; use ulysses"
    if ring and mixer.chunk is not None and mixer.chunk < seq_len:
        return f"{mode} with chunks of {mixer.chunk} tokens is not built yet; use ulysses"
    if ring and mixer.sinks:
        return f"{mode} with attention sinks is not built yet; use ulysses"
    return None


def _heads_violation(layer: Layer, strategy: LayerStrategy) -> str | None:
    if not strategy.ulysses:
        return None
    for name, size in head_sizes(layer).items():
        if size % strategy.tp:
            return f"tp {strategy.tp} with ulysses does not divide {name} {size}"
    return None
