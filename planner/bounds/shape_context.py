"""Context of a shape: ranks, samples, links, tied embeddings and memory of its stages."""

from __future__ import annotations

from typing import NamedTuple

from ...spec.model.towers import shared_tables
from ..candidates.evaluator import Evaluator
from ..space.pipeline_shape import PipelineShape


class ShapeContext(NamedTuple):
    """A stage of a shape as its layers see it.

    ``samples``: of a micro-batch, over the stage. ``link_span``: link levels that its groups
    cross. ``tied``: as :meth:`ShapeContexts.tied_embeddings`.
    """

    ranks: int
    samples: int
    link_span: int
    tied: dict[int, tuple[int, ...]]

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable form, equal for shapes whose stages offer the same options."""
        return (self.ranks, self.samples, self.link_span, tuple(self.tied))


class ShapeContexts:
    """Contexts of the shapes of a request, and the memory of their devices.

    Args:
        evaluator: of the request.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.request = evaluator.request
        self._rule = evaluator.rule
        self._machine = evaluator.simulator.pricer.machine
        self._link_spans: dict[tuple[int, int], int] = {}

    def of(self, shape: PipelineShape) -> ShapeContext:
        """The context of a shape."""
        tied = self.tied_embeddings(shape)
        return ShapeContext(shape.ranks, self.samples(shape), self.link_span(shape), tied)

    def samples(self, shape: PipelineShape) -> int:
        """Samples of a micro-batch over a stage."""
        return self.request.workload.global_batch // shape.microbatches

    def link_span(self, shape: PipelineShape) -> int:
        """Number of link levels that the groups of a stage cross."""
        key = (shape.ranks, shape.stages)
        if key not in self._link_spans:
            used = shape.ranks * shape.stages
            self._link_spans[key] = self._machine.link_span_of(shape.ranks, used)
        return self._link_spans[key]

    def tied_embeddings(self, shape: PipelineShape) -> dict[int, tuple[int, ...]]:
        """Layers without parameters of their own, and the head that carries theirs.

        On one stage these are the tables that share the head's weight. On several, a table behind
        the model's first layer shares it where both lie in one chunk, so neither is it certain
        that such a table carries parameters, nor that the head carries others'.
        """
        if not self.request.model.tie_embeddings:
            return {}
        ends = shared_tables(self.request.model)
        if shape.stages > 1:
            return {layer: () for layer in ends[:-1] if layer}
        return dict.fromkeys(ends[:-1], ()) | {ends[-1]: ends}

    def live_budget_bytes(self, shape: PipelineShape) -> float:
        """Live bytes that a device of a shape can hold."""
        communicators = int(shape.stages * shape.ranks > 1) + (4 if shape.stages > 1 else 0)
        capacity = self.request.cluster.groups[0].memory.hbm_bytes
        return self._rule.live_budget_bytes(capacity, self.request.stack, communicators)
