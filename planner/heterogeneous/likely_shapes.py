"""Good plans of the best-estimated shapes over several device groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..search.roles import Nodes
from ..space.pipeline_shape import PipelineShape
from .shape_explorer import ESTIMATE_WITHIN, ShapeExplorer
from .work_limits import HeterogeneousLimits

MOST_LOOKED = 6
"""Shapes that are estimated, with or without success, for each estimate that is wanted."""


class LikelyDeviceLayouts:
    """Search of the best-estimated shapes, few of each device layout."""

    def __init__(
        self,
        explorer: ShapeExplorer,
        limits: HeterogeneousLimits,
        wanted: Callable[[PipelineShape], bool] = lambda shape: True,
    ) -> None:
        self._explorer = explorer
        self._limits = limits
        self._wanted = wanted

    def run(self, nodes: Nodes) -> None:
        """Try plans of the likely shapes."""
        incumbents, limits = self._explorer.incumbents, self._limits
        tried: Counter[tuple[object, ...]] = Counter()
        before = incumbents.passes
        for estimate_s, number in self._estimated(nodes):
            is_spent = incumbents.passes - before > limits.heuristic_passes
            if tried.total() >= limits.heuristic_shapes or (incumbents.outcomes and is_spent):
                break
            # While no plan is known to fit, shapes that seem to have no room are searched too.
            if estimate_s > incumbents.best_value * ESTIMATE_WITHIN:
                break
            layout = _layout(nodes.shapes[number])
            is_new = tried[layout] < limits.heuristic_shapes_alike
            if is_new and self._explorer.search(nodes, number):
                tried[layout] += 1

    def _estimated(self, nodes: Nodes) -> list[tuple[float, int]]:
        """Estimates of the roughly fastest shapes, few of each layout, best first."""
        explorer, limits = self._explorer, self._limits
        numbers = (n for n, shape in enumerate(nodes.shapes) if self._wanted(shape))
        estimated: list[tuple[float, int]] = []
        looked = 0
        alike: Counter[tuple[object, ...]] = Counter()
        for number in sorted(numbers, key=lambda n: (explorer.rough_s(nodes, n), n)):
            if len(estimated) >= limits.estimates or looked >= MOST_LOOKED * limits.estimates:
                break
            shape = nodes.shapes[number]
            key = (_layout(shape), shape.kind)
            if alike[key] >= limits.estimates_alike:
                continue
            estimate_s = explorer.estimate_s(shape)
            looked += 1
            if estimate_s is not None:
                alike[key] += 1
                estimated.append((estimate_s, number))
        return sorted(estimated)


def _layout(shape: PipelineShape) -> tuple[object, ...]:
    return tuple((p.group, p.first, p.devices) for placement in shape.places for p in placement)
