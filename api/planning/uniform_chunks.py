"""Layers of a uniform plan in chunks, each with its strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer, ModelSpec
from ...spec.plan.layer_cuts import after_blocks
from ...spec.plan.plan import LayerPlan
from ...spec.plan.uniform_strategy import applicable_strategy
from ...spec.strategy import LayerStrategy

ChunkSplitter = Callable[[ModelSpec, int, LayerStrategy], list[tuple[LayerPlan, ...]]]
"""Splits a model into a number of chunks under one strategy."""


def block_chunks(
    model: ModelSpec, counts: Sequence[int], strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Cut a model after ``counts`` blocks; other layers join the block before them, or an end.

    Raises:
        InputError: a chunk without any layer.
    """
    is_block = [isinstance(layer, BlockLayer) for layer in model.layers()]
    boundaries = after_blocks(is_block, counts)
    for number, (first, end) in enumerate(pairwise(boundaries)):
        if first == end:
            given = f"0 blocks on chunk {number}"
            raise InputError("--layers-per-stage", given, "a layer on every stage", 1)
    return _cut(model, boundaries, strategy)


def even_layers(
    model: ModelSpec, chunks: int, strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Split layers, embedding and head counted, into near-equal runs.

    Lengths differ by one at most. Large models are often built for this: 126 blocks, embedding and
    head on 64 chunks, two in each.

    Raises:
        InputError: more chunks than layers.
    """
    count = len(model.layers())
    if chunks > count:
        raise InputError("--pp x --vpp", chunks, f"at most the {count} layers", count)
    return _cut(model, [number * count // chunks for number in range(chunks + 1)], strategy)


def layer_chunks(
    model: ModelSpec, sizes: Sequence[int], chunks: int, strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    """Cut a model into chunks of so many layers, embedding and head counted.

    Raises:
        InputError: sizes that miss the chunks or the layers.
    """
    count = len(model.layers())
    if len(sizes) != chunks or sum(sizes) != count or 0 in sizes:
        given = f"{','.join(map(str, sizes))} layers on {len(sizes)} chunks"
        allowed = f"{count} layers, embedding and head counted, on {chunks} chunks"
        raise InputError("layers of chunks", given, allowed)
    return _cut(model, [sum(sizes[:number]) for number in range(chunks + 1)], strategy)


def strategy_chunks(
    model: ModelSpec, boundaries: Sequence[int], strategies: Sequence[LayerStrategy]
) -> list[tuple[LayerPlan, ...]]:
    """Cut a model at boundaries under a strategy for each layer, as it applies there."""
    layers = [
        (tower.name, index, layer)
        for tower in model.towers
        for index, layer in enumerate(tower.expand())
    ]
    applied: dict[tuple[int, LayerStrategy], LayerStrategy] = {}
    entries = []
    for (name, index, layer), strategy in zip(layers, strategies, strict=True):
        key = id(layer), strategy
        if key not in applied:
            applied[key] = applicable_strategy(layer, strategy)
        entries.append((name, index, isinstance(layer, BlockLayer), applied[key]))
    return [_runs(entries[first:end]) for first, end in pairwise(boundaries)]


def _cut(
    model: ModelSpec, boundaries: Sequence[int], strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    return strategy_chunks(model, boundaries, [strategy] * len(model.layers()))


def _runs(entries: list[tuple[str, int, bool, LayerStrategy]]) -> tuple[LayerPlan, ...]:
    """Runs of one tower and strategy, blocks apart from other layers."""
    plans = []
    for (name, _, layer_strategy), run in groupby(
        entries, key=lambda entry: (entry[0], *entry[2:])
    ):
        numbers = [index for _, index, *_ in run]
        layers_of_run = (name, numbers[0], numbers[-1])
        plans.append(LayerPlan(layers=layers_of_run, strategy=layer_strategy))
    return tuple(plans)
