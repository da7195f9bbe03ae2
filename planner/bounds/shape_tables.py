"""Option tables, plan counts and boundaries of the shapes of a space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ...spec.strategy import LayerStrategy
from ..dynamic_programming.enumeration import all_boundaries, boundary_count
from ..dynamic_programming.stage_partition import even_boundaries
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace
from ..tables.option_table import OptionTable, OptionTables
from .shape_context import ShapeContexts

OptionsOf = Callable[[int, int, int], tuple[LayerStrategy, ...]]
MAX_BOUNDARIES = 1000
"""Partitions of a shape of a large model that are enumerated."""


class ShapeTables:
    """Option tables of each shape's layers."""

    def __init__(self, space: SearchSpace, options: OptionTables, contexts: ShapeContexts) -> None:
        self.space = space
        self._options = options
        self._contexts = contexts
        self._choices: dict[tuple[int, int], int] = {}

    def layers(self, shape: PipelineShape) -> list[OptionTable]:
        """All options of every layer, in order."""
        return self._tables(shape, usual=False)

    def usual(self, shape: PipelineShape) -> list[OptionTable]:
        """The usual options of every layer, in order."""
        return self._tables(shape, usual=True)

    def _tables(self, shape: PipelineShape, usual: bool) -> list[OptionTable]:
        return self.of(shape, self.space.usual if usual else self.space.options)

    def of(self, shape: PipelineShape, options: OptionsOf) -> list[OptionTable]:
        """Tables of every layer's options, in order.

        Args:
            shape: the shape.
            options: of a layer class on so many ranks and samples, the same object if asked again.
        """
        context = self._contexts.of(shape)
        ranks, samples = context.ranks, context.samples
        cache: dict[tuple[int, tuple[int, ...] | None], OptionTable] = {}
        tables = []
        for layer, layer_class in enumerate(self.space.layer_classes):
            key = (layer_class, context.tied.get(layer))
            if key not in cache:
                cache[key] = self._options.table(
                    layer,
                    options(layer_class, ranks, samples),
                    ranks,
                    samples,
                    shape.microbatches,
                    key[1],
                    context.link_span,
                    shape.overlaps_passes,
                    shape.stages == 1,
                )
            tables.append(cache[key])
        return tables

    def plan_count(self, shape: PipelineShape) -> int:
        """Number of plans of a shape."""
        key = (shape.ranks, self._contexts.samples(shape))
        if key not in self._choices:
            sizes = (len(self.space.options(c, *key)) for c in self.space.layer_classes)
            self._choices[key] = math.prod(sizes)
        return self._partition_count(shape) * self._choices[key]

    def _partition_count(self, shape: PipelineShape) -> int:
        if self._is_cut_evenly(shape):
            return 1
        return boundary_count(len(self.space.layer_classes), shape)

    def has_many_boundaries(self, shape: PipelineShape) -> bool:
        """True if a shape has too many partitions to visit."""
        many = boundary_count(len(self.space.layer_classes), shape) > MAX_BOUNDARIES
        return self.space.is_large and many and not self._is_cut_evenly(shape)

    def _is_cut_evenly(self, shape: PipelineShape) -> bool:
        """True if the space holds only the even partition of the shape."""
        return self.space.is_large and shape.chunks > 1

    def boundaries(self, shape: PipelineShape) -> Iterator[tuple[int, ...]]:
        """Every partition of a shape in the space."""
        layers = len(self.space.layer_classes)
        if self._is_cut_evenly(shape):
            return iter([tuple(even_boundaries(layers, shape))])
        return all_boundaries(layers, shape.positions)
