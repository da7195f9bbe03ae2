"""Results of blocks that a plan may keep by name, with their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.plan.plan import Plan
from ...spec.recomputation import (
    INPUT,
    block_of,
    is_by_operation,
    kept_results,
    names_elsewhere,
    result_names,
)
from ...spec.strategy import LayerStrategy
from ..lowering.plan_lowering import Lowering


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """One result of a kind of block: its bytes of a micro-batch on a device.

    ``first_layer``: the first of the kind and strategy, of ``layers`` such; ``alias``: its name in
    other code, '' if it has none; ``kept``: by the strategy, None where it does not recompute by
    operation.
    """

    first_layer: int
    layers: int
    name: str
    alias: str
    size_bytes: int
    bytes_per_token: float
    kept: bool | None


def block_results(plan: Plan, lowering: Lowering) -> list[BlockResult]:
    """Results of every kind of block and strategy of a plan, in order."""
    samples = plan.workload.global_batch // plan.program.schedule.microbatches
    places: dict[tuple[object, ...], tuple[int, LayerStrategy, int]] = {}
    counts: dict[tuple[object, ...], int] = {}
    for number, parts in ((stage, parts) for stage, _, parts in plan.program.chunks()):
        ranks = plan.program.stages[number].device_count
        for index, layer, strategy in plan.chunk_layers(parts):
            if block_of(layer) is not None:
                kind = (layer, strategy, ranks)
                places.setdefault(kind, (index, strategy, ranks))
                counts[kind] = counts.get(kind, 0) + 1
    rows: list[BlockResult] = []
    for same, place in places.items():
        rows += _rows(lowering, place, samples, counts[same])
    return rows


def _rows(
    lowering: Lowering, place: tuple[int, LayerStrategy, int], samples: int, count: int
) -> list[BlockResult]:
    index, strategy, ranks = place
    lowered = lowering.layer(index, strategy, strategy, ranks, samples)
    block = block_of(lowering.model.layers()[index])
    if block is None:
        raise RuntimeError("only blocks have named results")
    sizes = {INPUT: lowered.input_bytes, **dict(lowered.result_bytes)}
    tokens = lowered.shape.batch * lowered.shape.seq_len
    kept = kept_results(block, strategy.recompute, sums=strategy.weight_split > 1) | {INPUT}
    by_operation = is_by_operation(strategy.recompute)
    return [
        BlockResult(
            first_layer=index,
            layers=count,
            name=name,
            alias=names_elsewhere(name, block),
            size_bytes=sizes[name],
            bytes_per_token=sizes[name] / tokens,
            kept=name in kept if by_operation else None,
        )
        for name in result_names(block)
        if name in sizes
    ]
