"""Layers that share a vocabulary table need one split and sharding: one's, for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..spec.legality import tied_reason
from ..spec.towers import shared_tables
from .candidates import Decision
from .space import SearchSpace


def tied_variants(decision: Decision, space: SearchSpace) -> Iterator[Decision]:
    """The decision itself, or what becomes of it where the others take over one's strategy.

    Args:
        decision: strategies that were chosen layer by layer.
        space: whose model and legal strategies.
    """
    if tied_reason(space.request.model, decision.strategies) is None:
        yield decision
        return
    shape = decision.shape
    place = (shape.ranks, space.request.workload.global_batch // shape.microbatches)
    ends = shared_tables(space.request.model)
    for end in (ends[-1], *ends[:-1]):
        wanted = decision.strategies[end]
        if all(wanted in space.options(space.kinds[other], *place) for other in ends):
            changed = tuple(
                wanted if index in ends else strategy
                for index, strategy in enumerate(decision.strategies)
            )
            yield decision._replace(strategies=changed)
