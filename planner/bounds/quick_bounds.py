"""Quick proven bounds of shapes without option tables."""

from __future__ import annotations

from ..space.pipeline_shape import PipelineShape
from .compute_bounds import ComputeBounds
from .shape_context import ShapeContexts


class QuickBounds:
    """Bounds from the computation of the layers alone."""

    def __init__(self, compute: ComputeBounds, contexts: ShapeContexts) -> None:
        self.compute = compute
        self._contexts = contexts

    def step_s(self, shape: PipelineShape) -> float:
        """Minimum seconds of a shape; never above its exact bound."""
        adds_to_tied = shape.stages == 1 and bool(self._contexts.tied_embeddings(shape))
        return self.compute.bound(shape, adds_to_tied, self._contexts.link_span(shape))

    def passes_s(self, shape: PipelineShape) -> float:
        """Part of :meth:`step_s` before the end of the step."""
        return self.step_s(shape) - self.end_s(shape)

    def end_s(self, shape: PipelineShape) -> float:
        """Seconds after the last pass of every plan of a shape."""
        return self.compute.end_s(shape)
