"""Stage contexts of shapes: ranks, samples, links, tied embeddings, memory."""

from __future__ import annotations

from typing import NamedTuple

from ...costmodel.symbolic.tier_bytes import TIERS
from ...spec.model.towers import shared_tables
from ..candidates.evaluator import Evaluator
from ..space.memory_budget import Budget, tier_capacities
from ..space.pipeline_shape import PipelineShape


class ShapeContext(NamedTuple):
    """Stage context of a shape.

    ``samples``: of a micro-batch over the stage. ``link_span``: link levels of its groups.
    ``tied``: as :meth:`ShapeContexts.tied_embeddings`.
    """

    ranks: int
    samples: int
    link_span: int
    tied: dict[int, tuple[int, ...]]

    @property
    def key(self) -> tuple[object, ...]:
        """Hashable key, equal for shapes with the same options."""
        return (self.ranks, self.samples, self.link_span, tuple(self.tied))


class ShapeContexts:
    """Stage contexts of the shapes of a request, and memory.

    ``tiers``: numbers of the granted tiers; ``memories``: of memories in budgets, by their tiers.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.request = evaluator.request
        self._rule = evaluator.rule
        self._stack = evaluator.simulator.lowering.stack
        self._machine = evaluator.simulator.pricer.machine
        self._link_spans: dict[tuple[int, int], int] = {}
        capacities = tier_capacities(self.request.cluster.groups[0].memory)
        self.tiers = tuple(TIERS.index(tier) for tier in capacities)
        self.memories = {"hbm": 0} | {tier: n for n, tier in enumerate(capacities, 1)}

    def of(self, shape: PipelineShape) -> ShapeContext:
        """The context of a shape."""
        tied = self.tied_embeddings(shape)
        return ShapeContext(shape.ranks, self.samples(shape), self.link_span(shape), tied)

    def samples(self, shape: PipelineShape) -> int:
        """Samples of a micro-batch over a stage."""
        return self.request.workload.global_batch // shape.microbatches

    def link_span(self, shape: PipelineShape) -> int:
        """Number of link levels spanned by a stage's groups."""
        key = (shape.ranks, shape.stages)
        if key not in self._link_spans:
            used = shape.ranks * shape.stages
            self._link_spans[key] = self._machine.link_span_of(shape.ranks, used)
        return self._link_spans[key]

    def tied_embeddings(self, shape: PipelineShape) -> dict[int, tuple[int, ...]]:
        """Layers without parameters of their own, and the head with theirs.

        On one stage: tables that share the head's weight. On several, a table behind the first
        layer shares it if both lie in one chunk, so neither its own parameters nor the head's
        share are certain.
        """
        if not self.request.model.tie_embeddings:
            return {}
        ends = shared_tables(self.request.model)
        if shape.stages > 1:
            return {layer: () for layer in ends[:-1] if layer}
        return dict.fromkeys(ends[:-1], ()) | {ends[-1]: ends}

    def live_budget_bytes(self, shape: PipelineShape) -> float:
        """Live bytes available on a device of a shape."""
        communicators = int(shape.stages * shape.ranks > 1) + (4 if shape.stages > 1 else 0)
        capacity = self.request.cluster.groups[0].memory.hbm_bytes
        return self._rule.live_budget_bytes(capacity, self._stack, communicators)

    @property
    def tier_budget(self) -> Budget:
        """Bytes of each granted tier."""
        capacities = tier_capacities(self.request.cluster.groups[0].memory)
        return tuple(map(self._rule.tier_budget_bytes, capacities.values()))

    def budget(self, shape: PipelineShape) -> Budget:
        """Live bytes available on a device of a shape, then bytes of each granted tier."""
        return (self.live_budget_bytes(shape), *self.tier_budget)
