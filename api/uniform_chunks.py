"""The layers of a uniform plan: blocks in equal runs, and what of a strategy each layer takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from ..spec.errors import InputError, nearest_divisor
from ..spec.experts import experts_of
from ..spec.layer_legality import RECOMPUTED
from ..spec.model import BlockLayer, Layer, ModelSpec
from ..spec.plan import LayerPlan
from ..spec.strategy import LayerStrategy


def own_strategy(layer: Layer, strategy: LayerStrategy) -> LayerStrategy:
    """What a layer takes of one strategy for all: only blocks recompute, only experts split."""
    if not isinstance(layer, RECOMPUTED):
        strategy = replace(strategy, recompute="none")
    if experts_of(layer) is None:
        strategy = replace(strategy, ep=1, etp=1)
    return strategy


def even_chunks(
    model: ModelSpec, chunks: int, strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Blocks in equal runs; what stands before them joins the first chunk, the rest the last.

    Args:
        model: whose layers.
        chunks: how many runs.
        strategy: of every layer, as far as it applies to it.

    Raises:
        InputError: the blocks cannot be cut evenly.
    """
    blocks = model.block_count
    if blocks % chunks:
        raise InputError(
            "--pp x --vpp",
            chunks,
            f"a product that divides the {blocks} blocks",
            nearest_divisor(min(chunks, blocks), blocks),
        )
    parts: list[list[tuple[str, int, Layer]]] = [[] for _ in range(chunks)]
    seen = 0
    for tower in model.towers:
        for index, layer in enumerate(tower.expand()):
            seen += isinstance(layer, BlockLayer)
            parts[max(0, seen - 1) * chunks // blocks].append((tower.name, index, layer))
    return [_runs(part, strategy) for part in parts]


def _runs(layers: list[tuple[str, int, Layer]], strategy: LayerStrategy) -> tuple[LayerPlan, ...]:
    """Consecutive layers of one tower that take the same; blocks apart from other layers."""
    found = []
    entries = [
        (name, index, isinstance(layer, BlockLayer), own_strategy(layer, strategy))
        for name, index, layer in layers
    ]
    for (name, _, own), run in groupby(entries, key=lambda entry: (entry[0], *entry[2:])):
        numbers = [index for _, index, *_ in run]
        found.append(LayerPlan(layers=(name, numbers[0], numbers[-1]), strategy=own))
    return tuple(found)
