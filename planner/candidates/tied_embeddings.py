"""Layers that share a vocabulary table need one split and sharding: one's, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...spec.model.model_spec import ModelSpec
from ...spec.model.towers import shared_tables
from ...spec.rules.plan_rules import tied_embedding_violation
from ...spec.strategy import LayerStrategy
from ..space.search_space import SearchSpace
from .evaluator import Decision

LayerLegal = Callable[[int, LayerStrategy], bool]
"""Whether a layer may have a strategy."""


def tied_embedding_variants(decision: Decision, space: SearchSpace) -> Iterator[Decision]:
    """The decision itself, or what becomes of it where the others take over one's strategy.

    Args:
        decision: strategies that were chosen layer by layer.
        space: whose model and legal strategies.
    """
    shape = decision.shape
    place = (shape.ranks, space.request.workload.global_batch // shape.microbatches)

    def legal(layer: int, strategy: LayerStrategy) -> bool:
        return strategy in space.options(space.layer_classes[layer], *place)

    model = space.request.model
    yield from tied_embedding_choices(decision, shared_tables(model), model, legal)


def tied_embedding_choices(
    decision: Decision, ends: tuple[int, ...], model: ModelSpec, legal: LayerLegal
) -> Iterator[Decision]:
    """As :func:`tied_embedding_variants`.

    Args:
        decision: strategies that were chosen layer by layer.
        ends: the layers that share a table.
        model: whose layers they are.
        legal: whether a layer may have a strategy where the decision has it.
    """
    if tied_embedding_violation(model, decision.strategies) is None:
        yield decision
        return
    for end in (ends[-1], *ends[:-1]):
        wanted = decision.strategies[end]
        if all(legal(other, wanted) for other in ends):
            changed = tuple(
                wanted if index in ends else strategy
                for index, strategy in enumerate(decision.strategies)
            )
            yield decision._replace(strategies=changed)
