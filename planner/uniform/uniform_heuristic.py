"""Good uniform plans by their estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...spec.plan.layer_cuts import Boundaries
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision
from ..heuristics.heuristic import TryDecision
from ..search.incumbents import Incumbents
from ..search.roles import Nodes
from ..space.pipeline_shape import PipelineShape
from .uniform_plans import UniformShapePlans

PlansOf = Callable[[PipelineShape], UniformShapePlans]
ATTEMPTS = 6


class EstimatedPlan(NamedTuple):
    """A uniform plan with its likely value and the bytes of its fullest stage."""

    value: float
    bytes: float
    plans: UniformShapePlans
    boundaries: Boundaries
    row: int

    @property
    def shape(self) -> PipelineShape:
        """Its shape."""
        return self.plans.shape

    @property
    def strategy(self) -> LayerStrategy:
        """Its uniform strategy."""
        return self.plans.strategies[self.row]

    @property
    def decision(self) -> Decision:
        """Its decision."""
        return self.plans.decision(self.boundaries, self.row)


class UniformHeuristic:
    """Uniform plans of a shape by estimate, until one fits."""

    def __init__(self, plans_of: PlansOf, budget_bytes: Callable[[PipelineShape], float]) -> None:
        self._plans_of = plans_of
        self._budget_bytes = budget_bytes

    def search(self, shape: PipelineShape, attempt: TryDecision) -> None:
        """Try the likely fastest plans that seem to fit, then the leanest."""
        plans = self.estimated(shape)
        fitting = [p for p in plans if p.bytes <= self._budget_bytes(shape)]
        fitting.sort(key=lambda p: (p.value, p.bytes))
        leanest = sorted(plans, key=lambda p: (p.bytes, p.value))[:1]
        for plan in (*fitting[:ATTEMPTS], *leanest):
            outcome = attempt(plan.decision)
            if outcome is None or outcome.feasible:
                return

    def estimated(self, shape: PipelineShape, factor: float = 1.0) -> list[EstimatedPlan]:
        """Uniform plans of a shape in the most even cut."""
        plans = self._plans_of(shape)
        boundaries = next(plans.boundaries(), None)
        if boundaries is None or not plans.count:
            return []
        seconds, bytes_ = (part.tolist() for part in plans.estimates(boundaries))
        return [
            EstimatedPlan(s * factor, b, plans, boundaries, row)
            for row, (s, b) in enumerate(zip(seconds, bytes_, strict=True))
        ]

    def peak_bytes(self, shape: PipelineShape) -> float:
        """Fewest estimated bytes of a shape's fullest stage."""
        return min((plan.bytes for plan in self.estimated(shape)), default=float("inf"))


class LikelyUniformPlans:
    """Uniform plans of many shapes, the likely fastest first.

    Args:
        heuristic: estimates the plans of a shape.
        quick: proven value of a shape, to begin with the promising ones.
        incumbents: try the plans.
        budget_bytes: live bytes of a device of a shape.
        most_shapes: shapes estimated.
        most_plans: plans tried.
    """

    def __init__(
        self,
        heuristic: UniformHeuristic,
        quick: Callable[[PipelineShape], float],
        incumbents: Incumbents,
        budget_bytes: Callable[[PipelineShape], float],
        most_shapes: int,
        most_plans: int,
    ) -> None:
        self._heuristic = heuristic
        self._quick = quick
        self._incumbents = incumbents
        self._budget_bytes = budget_bytes
        self._most_shapes = most_shapes
        self._most_plans = most_plans

    def run(self, nodes: Nodes) -> None:
        """Try the likely best plans of all shapes."""
        plans = self._estimated(nodes.shapes)
        for plan in plans[: self._most_plans]:
            self._incumbents.try_decision(plan.decision)

    def first(self, shapes: Iterable[PipelineShape]) -> None:
        """Try the likely best plans of some shapes until one fits, then the leanest."""
        plans = self._estimated(shapes)
        leanest = sorted(plans, key=lambda p: (p.bytes, p.value))
        for plan in (*plans[: self._most_plans], *leanest[: self._most_plans]):
            if self._incumbents.outcomes:
                return
            self._incumbents.try_decision(plan.decision)

    def _estimated(self, shapes: Iterable[PipelineShape]) -> list[EstimatedPlan]:
        """The likely best plans of each promising shape, in order."""
        incumbents, plans = self._incumbents, list[EstimatedPlan]()
        for shape in sorted(shapes, key=self._quick)[: self._most_shapes]:
            incumbents.check_deadline()
            factor = incumbents.objective.factor(shape)
            plans += sorted(self._heuristic.estimated(shape, factor), key=self._rank)[:ATTEMPTS]
        return sorted(plans, key=self._rank)

    def _rank(self, plan: EstimatedPlan) -> tuple[bool, float, float]:
        return (plan.bytes > self._budget_bytes(plan.shape), plan.value, plan.bytes)
