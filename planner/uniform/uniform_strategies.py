"""Uniform strategies of a shape that all layers can take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...spec.plan.uniform_strategy import applicable_strategy, freedom
from ...spec.rules.stack_limits import limits_violation
from ...spec.strategy import LayerStrategy
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace

Accepts = Callable[[LayerStrategy, PipelineShape], bool]
"""True if a uniform strategy is wanted in a shape."""
Strategies = tuple[LayerStrategy, ...]


class UniformRows(NamedTuple):
    """Uniform strategies, and what each layer class takes of them, row by row."""

    uniform: tuple[LayerStrategy, ...]
    by_class: dict[int, tuple[LayerStrategy, ...]]

    def layers(self, classes: tuple[int, ...], row: int) -> tuple[LayerStrategy, ...]:
        """Strategy of every layer under one of them."""
        return tuple(self.by_class[layer_class][row] for layer_class in classes)


class UniformStrategies:
    """Uniform strategies of shapes, within the limits of the stack.

    Args:
        space: of the request.
        accepts: those wanted; it may depend on a shape's stages, ranks and samples only.
        narrow: those looked at, of the options of a layer.
    """

    def __init__(
        self,
        space: SearchSpace,
        accepts: Accepts = lambda strategy, shape: True,
        narrow: Callable[[Strategies], Strategies] = lambda options: options,
    ) -> None:
        self._narrow = narrow
        self._space = space
        self._accepts = accepts
        self._rows: dict[tuple[int, int, bool], UniformRows] = {}
        first = space.first_of_class
        self._freest = max(first, key=lambda c: freedom(space.layers[first[c]]))

    def of(self, shape: PipelineShape) -> UniformRows:
        """Those of a shape; the same object for shapes of equal stages."""
        samples = self._space.request.workload.global_batch // shape.microbatches
        key = (shape.ranks, samples, shape.stages > 1)
        if key not in self._rows:
            self._rows[key] = self._make(shape, samples)
        return self._rows[key]

    def _make(self, shape: PipelineShape, samples: int) -> UniformRows:
        space, request = self._space, self._space.request
        uniform: list[LayerStrategy] = []
        by_class: dict[int, list[LayerStrategy]] = {c: [] for c in space.first_of_class}
        for strategy in self._narrow(space.options(self._freest, shape.ranks, samples)):
            limits = (strategy, shape.ranks, shape.stages, request.stack)
            if not self._accepts(strategy, shape) or limits_violation(*limits) is not None:
                continue
            taken = {
                c: applicable_strategy(space.layers[index], strategy, request.techniques.values)
                for c, index in space.first_of_class.items()
            }
            if all(space.is_option(c, shape.ranks, samples, taken[c]) for c in taken):
                uniform.append(strategy)
                for c, one in taken.items():
                    by_class[c].append(one)
        return UniformRows(tuple(uniform), {c: tuple(rows) for c, rows in by_class.items()})
