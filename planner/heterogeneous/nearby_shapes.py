"""Good plans of shapes near those of the best plans.

They have the same stage types, and other micro-batches, schedules and depths: few shapes of a
layout are searched before.
"""

from __future__ import annotations

from itertools import islice

from ..search.roles import Nodes
from ..space.pipeline_shape import PipelineShape
from .shape_explorer import ESTIMATE_WITHIN, ShapeExplorer
from .work_limits import HeterogeneousLimits


class NearbyShapes:
    """Search near the best plans while improving."""

    def __init__(self, explorer: ShapeExplorer, limits: HeterogeneousLimits) -> None:
        self._explorer = explorer
        self._limits = limits

    def run(self, nodes: Nodes) -> None:
        """Try plans of shapes near those of the best plans."""
        incumbents = self._explorer.incumbents
        for _ in range(self._limits.near_rounds):
            ranked = incumbents.ranked()
            shapes: dict[tuple[object, ...], PipelineShape] = {}
            for outcome in ranked:
                shapes.setdefault(_stage_types(outcome.decision.shape), outcome.decision.shape)
            for shape in islice(shapes.values(), self._limits.near_sorts):
                self._search_near(nodes, shape)
            if not ranked or incumbents.best() is ranked[0]:
                return

    def _search_near(self, nodes: Nodes, shape: PipelineShape) -> None:
        """Try the best-estimated shapes with the same stage types."""
        explorer, limits = self._explorer, self._limits
        before = explorer.incumbents.passes
        numbers = [n for n in self._near(nodes, shape) if n not in explorer.searched]
        estimates = ((explorer.estimate_s(nodes.shapes[n]), n) for n in numbers[: limits.near])
        estimated = sorted((s, n) for s, n in estimates if s is not None)
        for estimate_s, number in estimated[: limits.near_looked]:
            if explorer.incumbents.passes - before > limits.near_passes:
                return
            if estimate_s <= explorer.incumbents.best_value * ESTIMATE_WITHIN:
                explorer.search(nodes, number)

    def _near(self, nodes: Nodes, shape: PipelineShape) -> list[int]:
        types, best_s = _stage_types(shape), self._explorer.incumbents.best_value
        better = (n for n, bound_s in enumerate(nodes.quick) if bound_s < best_s)
        alike = (n for n in better if _stage_types(nodes.shapes[n]) == types)
        return sorted(alike, key=lambda n: self._explorer.rough_s(nodes, n))


def _stage_types(shape: PipelineShape) -> tuple[object, ...]:
    stages = (tuple((p.group, p.devices) for p in placement) for placement in shape.places)
    return tuple(dict.fromkeys(stages))
