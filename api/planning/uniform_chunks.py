"""Layers of a uniform plan in chunks, each with its strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

from ...spec.errors import InputError
from ...spec.model.model_spec import BlockLayer, Layer, ModelSpec
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


def _cut(
    model: ModelSpec, boundaries: Sequence[int], strategy: LayerStrategy
) -> list[tuple[LayerPlan, ...]]:
    layers = [
        (tower.name, index, layer)
        for tower in model.towers
        for index, layer in enumerate(tower.expand())
    ]
    return [_runs(layers[first:end], strategy) for first, end in pairwise(boundaries)]


def _runs(layers: list[tuple[str, int, Layer]], strategy: LayerStrategy) -> tuple[LayerPlan, ...]:
    """Runs of one tower and strategy, blocks apart from other layers."""
    plans = []
    distinct = {id(layer): layer for *_, layer in layers}
    applied = {key: applicable_strategy(layer, strategy) for key, layer in distinct.items()}
    entries = [
        (name, index, isinstance(layer, BlockLayer), applied[id(layer)])
        for name, index, layer in layers
    ]
    for (name, _, layer_strategy), run in groupby(
        entries, key=lambda entry: (entry[0], *entry[2:])
    ):
        numbers = [index for _, index, *_ in run]
        layers_of_run = (name, numbers[0], numbers[-1])
        plans.append(LayerPlan(layers=layers_of_run, strategy=layer_strategy))
    return tuple(plans)
