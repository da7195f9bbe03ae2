"""Quick proven bounds of shapes, which need no tables of options."""

from __future__ import annotations

from ..space.pipeline_shape import PipelineShape
from .compute_bounds import ComputeBounds
from .shape_context import ShapeContexts


class QuickBounds:
    """Bounds from the computation of the layers alone.

    Args:
        compute: least computation of the layers.
        contexts: of the shapes.
    """

    def __init__(self, compute: ComputeBounds, contexts: ShapeContexts) -> None:
        self.compute = compute
        self._contexts = contexts

    def step_s(self, shape: PipelineShape) -> float:
        """Seconds that every plan of a shape takes at least; never above its exact bound."""
        adds_to_tied = shape.stages == 1 and bool(self._contexts.tied_embeddings(shape))
        return self.compute.bound(shape, adds_to_tied, self._contexts.link_span(shape))

    def passes_s(self, shape: PipelineShape) -> float:
        """The part of :meth:`step_s` before the end of the step."""
        return self.step_s(shape) - self.end_s(shape)

    def end_s(self, shape: PipelineShape) -> float:
        """Seconds after the last pass that every plan of a shape has."""
        return self.compute.end_s(shape)
