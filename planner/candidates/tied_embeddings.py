"""Decisions with equal split and sharding for layers of one vocabulary table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...spec.model.model_spec import ModelSpec
from ...spec.model.towers import shared_tables
from ...spec.rules.plan_rules import tied_embedding_violation
from ...spec.strategy import LayerStrategy
from ..space.search_space import SearchSpace
from .evaluator import Decision

IsLegal = Callable[[int, LayerStrategy], bool]
"""True if a layer may have a strategy."""
LayerLegality = Callable[[Decision], IsLegal]
"""Legality of strategies in the stages of a decision."""


def legality_in(space: SearchSpace) -> LayerLegality:
    """Legality in a space of one device group."""

    def legality(decision: Decision) -> IsLegal:
        shape = decision.shape
        samples = space.request.workload.global_batch // shape.microbatches

        def is_legal(layer: int, strategy: LayerStrategy) -> bool:
            return space.is_option(space.layer_classes[layer], shape.ranks, samples, strategy)

        return is_legal

    return legality


def tied_embedding_choices(
    decision: Decision, model: ModelSpec, is_legal: IsLegal
) -> Iterator[Decision]:
    """Decisions with one strategy for all tied layers, or the unchanged one."""
    if tied_embedding_violation(model, decision.strategies) is None:
        yield decision
        return
    tied = shared_tables(model)
    for source in (tied[-1], *tied[:-1]):
        strategy = decision.strategies[source]
        if all(is_legal(layer, strategy) for layer in tied):
            strategies = tuple(
                strategy if layer in tied else original
                for layer, original in enumerate(decision.strategies)
            )
            yield decision._replace(strategies=strategies)
