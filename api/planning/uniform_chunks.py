"""The layers of a uniform plan: equal runs, and what of a strategy each layer takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby, pairwise

from ...spec.errors import InputError, nearest_divisor
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import BlockLayer, Layer, ModelSpec
from ...spec.plan.plan import LayerPlan
from ...spec.rules.layer_rules import recomputes_of
from ...spec.strategy import LayerStrategy
from ...spec.technique import Values
from ...spec.technique_values import with_value
from ...spec.techniques import TECHNIQUES

ChunkSplitter = Callable[[ModelSpec, int, LayerStrategy], list[tuple[LayerPlan, ...]]]
"""Cuts a model into so many chunks under one strategy."""


def applicable_strategy(
    layer: Layer, strategy: LayerStrategy, techniques: Values = TECHNIQUES
) -> LayerStrategy:
    """What a layer takes of one strategy for all.

    Only blocks recompute, only experts split, techniques are of the kinds they are priced for.
    """
    for technique in techniques:
        if technique.name in strategy.techniques and layer.kind not in technique.kinds.simulable:
            strategy = with_value(strategy, technique.name, None)
    if strategy.recompute not in recomputes_of(layer):
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


def even_layers(
    model: ModelSpec, chunks: int, strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Layers, embedding and head counted, in runs whose lengths differ by at most one.

    Large models are often built for this: 126 blocks and two ends on 64 chunks, two in each.

    Args:
        model: whose layers.
        chunks: how many runs.
        strategy: of every layer, as far as it applies to it.

    Raises:
        InputError: more chunks than layers.
    """
    layers = [
        (tower.name, index, layer)
        for tower in model.towers
        for index, layer in enumerate(tower.expand())
    ]
    if chunks > len(layers):
        raise InputError("--pp x --vpp", chunks, f"at most the {len(layers)} layers", len(layers))
    cuts = [number * len(layers) // chunks for number in range(chunks + 1)]
    return [_runs(layers[first:end], strategy) for first, end in pairwise(cuts)]


def _runs(layers: list[tuple[str, int, Layer]], strategy: LayerStrategy) -> tuple[LayerPlan, ...]:
    """Consecutive layers of one tower that take the same; blocks apart from other layers."""
    found = []
    kinds = {id(layer): layer for *_, layer in layers}
    own_of = {key: applicable_strategy(layer, strategy) for key, layer in kinds.items()}
    entries = [
        (name, index, isinstance(layer, BlockLayer), own_of[id(layer)])
        for name, index, layer in layers
    ]
    for (name, _, own), run in groupby(entries, key=lambda entry: (entry[0], *entry[2:])):
        numbers = [index for _, index, *_ in run]
        found.append(LayerPlan(layers=(name, numbers[0], numbers[-1]), strategy=own))
    return tuple(found)
