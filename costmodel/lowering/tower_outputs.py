"""Outputs of other towers in a pipeline chunk: bytes, origin and lifetime.

Between stages they travel with the activations. A chunk that reads one by cross-attention keeps it
until its micro-batch has gone backward, and accumulates its gradient; others keep neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...spec.model.towers import LayerContext, TowerOutput, tower_outputs_after
from ...spec.strategy import LayerStrategy
from ..symbolic.layer_shape import TowerInputShape

LocalBytes = Callable[[int, int, LayerStrategy], int]
ChunkLayers = tuple[tuple[int, LayerStrategy], ...]


@dataclass(frozen=True, slots=True)
class ChunkTowerOutput:
    """One tower's output in a chunk, on one rank.

    ``receives_bytes`` and ``sends_bytes`` cross the chunk's ends (0: made or last read here).
    ``size_bytes``: in the first layout. ``kept``: cross-attention saves it for its backward.
    """

    size_bytes: int
    receives_bytes: int
    sends_bytes: int
    kept: bool


def tower_input_shapes(context: LayerContext, redistributes: bool) -> tuple[TowerInputShape, ...]:
    """Tower outputs at a layer; unread ones only if redistributed."""
    return tuple(
        TowerInputShape(source.tokens, source.hidden, source in context.read)
        for source in context.sources
        if redistributes or source in context.read
    )


def chunk_tower_outputs(
    contexts: tuple[LayerContext, ...],
    outputs: tuple[TowerOutput, ...],
    layers: ChunkLayers,
    before: LayerStrategy | None,
    local_bytes: LocalBytes,
) -> tuple[ChunkTowerOutput, ...]:
    """Tower outputs received, made or read by a chunk.

    ``contexts`` are all layers', ``outputs`` all in them. ``layers``: the chunk's numbers and
    strategies; ``before``: strategy before it. ``local_bytes``: bytes on a rank from tokens per
    sample, width and strategy.
    """
    if not outputs:
        return ()
    first, last = layers[0][0], layers[-1][0]
    strategies = dict(layers)
    incoming, outgoing = contexts[first].sources, tower_outputs_after(contexts, last)
    local_outputs = [output for output in outputs if output.layer in strategies]
    chunk_outputs = []
    for source in dict.fromkeys((*incoming, *local_outputs)):
        reads = [i for i, _ in layers if source in contexts[i].read]
        first_strategy = strategies.get(source.layer) or before or layers[0][1]
        size_bytes = local_bytes(source.tokens, source.hidden, first_strategy)
        sent_bytes = local_bytes(source.tokens, source.hidden, layers[-1][1])
        chunk_outputs.append(
            ChunkTowerOutput(
                size_bytes=size_bytes,
                receives_bytes=size_bytes if source in incoming else 0,
                sends_bytes=sent_bytes if source in outgoing else 0,
                kept=any(not contexts[i].begins_tower for i in reads),
            )
        )
    return tuple(chunk_outputs)
