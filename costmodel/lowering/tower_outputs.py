"""Outputs of other towers in a chunk of a pipeline: how many bytes, from where, for how long.

Between stages they travel with the activations. A chunk that reads one by cross-attention keeps
it, as it keeps activations, until its micro-batch has gone backward, and gathers its gradient
meanwhile; a chunk that only hands it on keeps neither.
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

    ``receives_bytes`` and ``sends_bytes`` cross the chunk's ends (0: it is made here, or read
    for the last time). ``size_bytes``: in the layout in which the chunk first has it. ``kept``:
    cross-attention saves it for its backward.
    """

    size_bytes: int
    receives_bytes: int
    sends_bytes: int
    kept: bool


def tower_input_shapes(place: LayerContext, redistributes: bool) -> tuple[TowerInputShape, ...]:
    """What comes along to a layer; where the layout stays, what it does not read is no work."""
    return tuple(
        TowerInputShape(source.tokens, source.hidden, source in place.read)
        for source in place.sources
        if redistributes or source in place.read
    )


def chunk_tower_outputs(
    places: tuple[LayerContext, ...],
    outputs: tuple[TowerOutput, ...],
    layers: ChunkLayers,
    before: LayerStrategy | None,
    local_bytes: LocalBytes,
) -> tuple[ChunkTowerOutput, ...]:
    """The outputs of towers that a chunk receives, makes or reads.

    Args:
        places: of all layers of the model.
        outputs: all that are in them.
        layers: the chunk's layer numbers and strategies.
        before: strategy of the layer before it.
        local_bytes: bytes on a rank of so many tokens of a sample, this wide, under a strategy.
    """
    if not outputs:
        return ()
    first, last = layers[0][0], layers[-1][0]
    strategies = dict(layers)
    incoming, outgoing = places[first].sources, tower_outputs_after(places, last)
    made = [output for output in outputs if output.layer in strategies]
    found = []
    for source in dict.fromkeys((*incoming, *made)):
        reads = [i for i, _ in layers if source in places[i].read]
        had = strategies.get(source.layer) or before or layers[0][1]
        size = local_bytes(source.tokens, source.hidden, had)
        goes = local_bytes(source.tokens, source.hidden, layers[-1][1])
        found.append(
            ChunkTowerOutput(
                size_bytes=size,
                receives_bytes=size if source in incoming else 0,
                sends_bytes=goes if source in outgoing else 0,
                kept=any(not places[i].begins_tower for i in reads),
            )
        )
    return tuple(found)
