"""Embedding and head that share a weight need one split and sharding: either's, for both."""

from __future__ import annotations

from collections.abc import Iterator

from ..spec.legality import tied_reason
from .candidates import Decision
from .space import SearchSpace


def tied_variants(decision: Decision, space: SearchSpace) -> Iterator[Decision]:
    """The decision itself, or what becomes of it where one end takes over the other's strategy.

    Args:
        decision: strategies that were chosen layer by layer.
        space: whose model and legal strategies.
    """
    first, *between, last = decision.strategies
    if tied_reason(space.request.model, decision.strategies) is None:
        yield decision
        return
    shape = decision.shape
    place = (shape.ranks, space.request.workload.global_batch // shape.microbatches)
    if last in space.options(space.kinds[0], *place):
        yield decision._replace(strategies=(last, *between, last))
    if first in space.options(space.kinds[-1], *place):
        yield decision._replace(strategies=(first, *between, first))
