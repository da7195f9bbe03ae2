"""Good plans of large models from relaxed steps: roughly, then by bound."""

from __future__ import annotations

from collections import Counter

from ..bounds.shape_values import ShapeValues
from ..heuristics.heuristic import Heuristic
from ..heuristics.lp_rounding import LpRounding
from ..space.pipeline_shape import PipelineShape
from .incumbents import Incumbents
from .refined_bounds import RefinedBounds
from .roles import Nodes, Progress
from .shape_ranking import ShapeRanking
from .work_limits import Limits

ESTIMATED_WITHIN = 1.05
"""Large shapes are not searched where chains of passes estimate more than this."""


class RoughShapes:
    """Plans of the relaxed steps of the roughly fastest shapes.

    With a good plan at hand most other shapes need only aggregated bounds.
    """

    def __init__(
        self,
        ranking: ShapeRanking,
        bounds: RefinedBounds,
        values: ShapeValues,
        rounding: LpRounding,
        incumbents: Incumbents,
        limits: Limits,
    ) -> None:
        self._ranking = ranking
        self._bounds = bounds
        self._values = values
        self._relaxations = values.bounds.relaxations
        self._rounding = rounding
        self._incumbents = incumbents
        self._limits = limits

    def run(self, nodes: Nodes) -> None:
        """Round the relaxed steps of the roughly fastest shapes."""
        shapes, limits = nodes.shapes, self._limits
        numbers = [n for n in self._roughest(shapes) if self._relaxations.can_bound(shapes[n])]
        aggregated = sorted((self._aggregated_estimate(shapes[n]), n) for n in numbers)
        chains = sorted(
            (self._closed_chain_value(shapes[n]), n) for _, n in aggregated[: limits.relaxed_cuts]
        )
        for _, number in chains[: limits.relaxed_first]:
            self._incumbents.check_deadline()
            self._rounding.search(shapes[number], self._incumbents.try_likely)

    def _roughest(self, shapes: list[PipelineShape]) -> list[int]:
        """Roughly fastest shapes of the best-estimated widths, few alike.

        Stage width decides most of what layers need and send. Twice as many stages of half the
        width hold the chunks of a V.
        """
        limits = self._limits
        widths = dict.fromkeys(shapes[n].ranks for _, n in self._ranking.estimated(shapes))
        microbatches: dict[int, set[int]] = {}
        for ranks in list(widths)[: limits.rough_widths]:
            microbatches |= {ranks: set(), ranks // 2: set()}
        alike: Counter[tuple[object, ...]] = Counter()
        numbers: list[int] = []
        for number in self._ranking.rough(shapes):
            shape = shapes[number]
            counts = microbatches.get(shape.ranks)
            if counts is None:
                continue
            if len(counts) < limits.rough_microbatches:
                counts.add(shape.microbatches)
            key = (shape.ranks, shape.kind)
            if shape.microbatches in counts and alike[key] < limits.rough_alike:
                alike[key] += 1
                numbers.append(number)
        return numbers

    def _aggregated_estimate(self, shape: PipelineShape) -> float:
        bounds = self._values.bounds
        factor = bounds.rough_s(shape) / bounds.quick_s(shape)
        return max(self._bounds.aggregated(shape), self._values.quick(shape)) * factor

    def _closed_chain_value(self, shape: PipelineShape) -> float:
        """Minimum value of a shape in likely boundaries, its steps untimed."""
        self._incumbents.check_deadline()
        if not self._relaxations.can_bound(shape):
            return float("inf")
        return self._relaxations.closed_chain_bound_s(shape) * self._values.factor(shape)


class ShapesByBound:
    """Good plans from shapes of least bound, up to the best plan."""

    def __init__(
        self,
        bounds: RefinedBounds,
        values: ShapeValues,
        rounding: LpRounding,
        uniform: Heuristic,
        weighted: Heuristic,
        incumbents: Incumbents,
        most: int,
        progress: Progress,
    ) -> None:
        self._bounds = bounds
        self._relaxations = values.bounds.relaxations
        self._rounding = rounding
        self._uniform = uniform
        self._weighted = weighted
        self._incumbents = incumbents
        self._most = most
        self._progress = progress

    def run(self, nodes: Nodes) -> None:
        """Try plans of shapes by growing bound."""
        incumbents, tried = self._incumbents, 0
        for bound, number in nodes.queue:
            incumbents.check_deadline()
            self._progress(tried, len(nodes.queue), incumbents.best_value)
            if bound >= incumbents.best_value * self._bounds.enough or tried >= self._most:
                break
            self._bounds.open_value = min(self._bounds.open_value, bound)
            shape = nodes.shapes[number]
            if not self._relaxations.can_bound(shape):
                continue
            tried += 1
            self._search(shape)

    def _search(self, shape: PipelineShape) -> None:
        incumbents = self._incumbents
        incumbents.check_deadline()
        self._rounding.search(shape, incumbents.try_likely)
        if not self._rounding.may_be_best(shape):
            return
        estimate_s = self._relaxations.estimate(shape) / ESTIMATED_WITHIN
        if estimate_s < incumbents.best_s(shape):
            self._uniform.search(shape, incumbents.try_layers)
            self._weighted.search(shape, incumbents.try_likely)
