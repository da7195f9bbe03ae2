"""What a plan decides layer by layer: distinct strategies, and kinds of parallelism.

Recomputation says nothing of layers that are no blocks, nor experts' degrees of layers without
experts: a layer takes another's strategy where they agree on what concerns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.model_spec import Layer
from shardwright.spec.plan.plan import Plan
from shardwright.spec.strategy import LayerStrategy

FIELDS = tuple(item.name for item in fields(LayerStrategy))
OF_BLOCKS = ("recompute",)
OF_EXPERTS = ("ep", "etp")
Placed = tuple[Layer, LayerStrategy, int]
"""A layer, its strategy and the devices of its stage."""


def placed_layers(plan: Plan) -> Iterator[Placed]:
    """Every layer of the only program, stage by stage."""
    for stage in plan.program.stages:
        for parts in stage.virtual_stages:
            for _, layer, strategy in plan.chunk_layers(parts):
                yield layer, strategy, stage.device_count


def choices(layer: Layer, strategy: LayerStrategy) -> tuple[tuple[str, str], ...]:
    """What a strategy decides of a layer: fields and their values as text."""
    left_out = () if isinstance(layer, BlockLayer) else OF_BLOCKS
    left_out += () if experts_of(layer) else OF_EXPERTS
    return tuple((name, repr(getattr(strategy, name))) for name in FIELDS if name not in left_out)


def distinct_strategies(plan: Plan) -> list[dict[str, str]]:
    """Strategies of which none says what another says; one for a uniform plan."""
    every = dict.fromkeys(choices(layer, strategy) for layer, strategy, _ in placed_layers(plan))
    kept: list[dict[str, str]] = []
    for items in sorted(every, key=len, reverse=True):
        if not any(set(items) <= set(other.items()) for other in kept):
            kept.append(dict(items))
    return kept


def kinds_of_parallelism(plan: Plan) -> set[str]:
    """Ways in which a plan splits the work."""
    kinds = {"pipeline"} if len(plan.program.stages) > 1 else set()
    return kinds.union(*(_kinds(*placed) for placed in placed_layers(plan)))


def _kinds(layer: Layer, strategy: LayerStrategy, devices: int) -> set[str]:
    has_experts = experts_of(layer) is not None
    degrees = {
        "sequence" if strategy.ulysses else "tensor": strategy.tp,
        "context": strategy.cp,
        "data": strategy.data_parallel(devices),
        "expert": strategy.ep if has_experts else 1,
        "expert tensor": strategy.etp if has_experts else 1,
    }
    return {kind for kind, degree in degrees.items() if degree > 1}
