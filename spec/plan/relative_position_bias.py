"""Tables of relative positions, and blocks that share another's bias.

The first block of a tower has the table, and its later blocks share the bias computed from it
(T5). A stage boundary may fall between them: then the first of them in a chunk has a copy of the
table and computes the bias anew, and the copies' gradients are summed as those of a vocabulary
table that stages share. A bias is computed for the heads of a rank, so blocks that share one
split them equally.
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
"""Name of the table in its block."""


@lru_cache(maxsize=256)
def table_blocks(model: ModelSpec) -> dict[int, int]:
    """Block with a table or shared bias -> owner of the table."""
    owners: dict[int, int] = {}
    first = 0
    for tower in model.towers:
        owner = None
        for index, layer in enumerate(tower.expand(), start=first):
            spec = layer.attention if isinstance(layer, BlockLayer) else None
            if not isinstance(spec, Attention):
                continue
            if spec.relative_buckets:
                owner = index
            if owner is not None and (spec.relative_buckets or spec.shared_bias):
                owners[index] = owner
        first += tower.layer_count
    return owners


def table_copies(model: ModelSpec, numbers: Sequence[int]) -> dict[int, BlockLayer]:
    """Blocks of a chunk that get a copy of a table."""
    owners = table_blocks(model)
    owners_in_chunk = {owners[index] for index in numbers if owners.get(index) == index}
    copies = {}
    for index in numbers:
        if index in owners and owners[index] not in owners_in_chunk:
            owners_in_chunk.add(owners[index])
            copies[index] = with_table(model, index)
    return copies


def with_table(model: ModelSpec, index: int) -> BlockLayer:
    """Block ``index`` with a copy of the table whose bias it shares."""
    layers = model.layers()
    block, source = layers[index], layers[table_blocks(model)[index]]
    if not isinstance(block, BlockLayer) or not isinstance(source, BlockLayer):
        raise TypeError("blocks share a bias")
    attention, table = block.attention, source.attention
    if not isinstance(attention, Attention) or not isinstance(table, Attention):
        raise TypeError("blocks of attention share a bias")
    buckets = table.relative_buckets
    return replace(block, attention=replace(attention, relative_buckets=buckets, shared_bias=False))


def bias_holders(plan: Plan) -> dict[int, tuple[tuple[int, int], ...]]:
    """Owners of copied tables -> ``(stage, layer)`` of all copies.

    Keyed by the number of the block that owns the table, whose pair comes first.
    """
    owners = table_blocks(plan.model)
    holders: dict[int, list[tuple[int, int]]] = {}
    if not owners:
        return {}
    for number, _, parts in plan.program.chunks():
        numbers = [index for index, _, _ in plan.chunk_layers(parts)]
        copies = table_copies(plan.model, numbers)
        for index in numbers:
            if index in copies or owners.get(index) == index:
                holders.setdefault(owners[index], []).append((number, index))
    return {index: tuple(pairs) for index, pairs in holders.items() if len(pairs) > 1}


def unsupported_shared_bias(plan: Plan) -> str | None:
    """Reason why the executor cannot share a plan's biases, or None."""
    strategies = plan.layer_strategies()
    splits: dict[int, set[int]] = {}
    for index, owner in table_blocks(plan.model).items():
        splits.setdefault(owner, set()).add(strategies[index].tp)
    for degrees in splits.values():
        if len(degrees) > 1:
            wide = " and ".join(map(str, sorted(degrees)))
            return f"blocks that share a bias of relative positions with tp {wide}: one tp runs"
    for holders in bias_holders(plan).values():
        widths = {plan.program.stages[stage].device_count for stage, _ in holders}
        shards = {strategies[index].shard for _, index in holders}
        if len(widths) > 1 or len(shards) > 1:
            return (
                "copies of a table of relative positions on stages of other widths or sharding: "
                "equal ones run"
            )
    return None


def as_built(model: ModelSpec, numbers: Sequence[int]) -> dict[int, Layer]:
    """Layers of a chunk by number, copied tables included."""
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
