"""Tables of relative positions: which blocks add what another made of its table.

The first block of a tower has the table, and its later blocks share the bias that it makes (T5). A
pipeline may cut between them: then the first of them in a chunk has a copy of the table and makes
the bias anew, and the copies' gradients are summed as those of a vocabulary table that stages
share. A bias is made for the heads of a rank, so blocks that share one split them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..model.layers import BlockLayer, Layer
from ..model.mixers import Attention

if TYPE_CHECKING:
    from ..model.model_spec import ModelSpec
    from .plan import Plan

TABLE = "relative.weight"
"""The table's name in its block."""


@lru_cache(maxsize=256)
def table_blocks(model: ModelSpec) -> dict[int, int]:
    """The number of the block whose table it is, for every block that has one or shares a bias."""
    found: dict[int, int] = {}
    first = 0
    for tower in model.towers:
        table = None
        for index, layer in enumerate(tower.expand(), start=first):
            spec = layer.attention if isinstance(layer, BlockLayer) else None
            if not isinstance(spec, Attention):
                continue
            if spec.relative_buckets:
                table = index
            if table is not None and (spec.relative_buckets or spec.shared_bias):
                found[index] = table
        first += tower.layer_count
    return found


def table_copies(model: ModelSpec, numbers: Sequence[int]) -> dict[int, BlockLayer]:
    """The blocks of a chunk that hold a copy of a table, as they are with it.

    Args:
        model: whose layers.
        numbers: the layers of the chunk, in order.
    """
    sources = table_blocks(model)
    held = {sources[index] for index in numbers if sources.get(index) == index}
    found = {}
    for index in numbers:
        if index in sources and sources[index] not in held:
            held.add(sources[index])
            found[index] = with_table(model, index)
    return found


def with_table(model: ModelSpec, index: int) -> BlockLayer:
    """Block ``index`` as it is with a copy of the table whose bias it shares."""
    layers = model.layers()
    block, source = layers[index], layers[table_blocks(model)[index]]
    if not isinstance(block, BlockLayer) or not isinstance(source, BlockLayer):
        raise TypeError("blocks share a bias")
    own, table = block.attention, source.attention
    if not isinstance(own, Attention) or not isinstance(table, Attention):
        raise TypeError("blocks of attention share a bias")
    buckets = table.relative_buckets
    return replace(block, attention=replace(own, relative_buckets=buckets, shared_bias=False))


def bias_holders(plan: Plan) -> dict[int, tuple[tuple[int, int], ...]]:
    """By the number of a block with a table that others copy: all that hold it, and their stages.

    Pairs of a stage and a layer, the table's own first.
    """
    sources = table_blocks(plan.model)
    found: dict[int, list[tuple[int, int]]] = {}
    if not sources:
        return {}
    for number, _, parts in plan.program.chunks():
        numbers = [index for index, _, _ in plan.chunk_layers(parts)]
        copies = table_copies(plan.model, numbers)
        for index in numbers:
            if index in copies or sources.get(index) == index:
                found.setdefault(sources[index], []).append((number, index))
    return {index: tuple(held) for index, held in found.items() if len(held) > 1}


def unsupported_shared_bias(plan: Plan) -> str | None:
    """Why the bundled executor cannot share the biases of a plan's blocks; None if it can."""
    strategies = plan.layer_strategies()
    splits: dict[int, set[int]] = {}
    for index, table in table_blocks(plan.model).items():
        splits.setdefault(table, set()).add(strategies[index].tp)
    for degrees in splits.values():
        if len(degrees) > 1:
            wide = " and ".join(map(str, sorted(degrees)))
            return f"blocks that share a bias of relative positions with tp {wide}: one tp runs"
    for held in bias_holders(plan).values():
        widths = {plan.program.stages[stage].device_count for stage, _ in held}
        shards = {strategies[index].shard for _, index in held}
        if len(widths) > 1 or len(shards) > 1:
            return (
                "copies of a table of relative positions on stages of other widths or sharding: "
                "equal ones run"
            )
    return None


def as_built(model: ModelSpec, numbers: Sequence[int]) -> dict[int, Layer]:
    """The layers of a chunk by number, those that hold a copy of a table with it."""
    layers = model.layers()
    return {index: layers[index] for index in numbers} | table_copies(model, numbers)


__all__ = [
    "TABLE",
    "as_built",
    "bias_holders",
    "table_blocks",
    "table_copies",
    "unsupported_shared_bias",
    "with_table",
]
