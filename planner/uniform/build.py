"""Search of a stack that runs one strategy for all layers: the assembled engine.

The space has few plans a shape, so each shape in turn is enumerated by growing bound, and the best
plan is proven within the limits of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from ..bounds.listed_bounds import ListedBounds
from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Evaluator
from ..candidates.infeasibility import infeasible_error
from ..candidates.tied_embeddings import legality_in
from ..search.branch_and_bound import BranchAndBound
from ..search.build import SingleGroupParts, shape_bounds
from ..search.enumeration import Enumeration
from ..search.feasibility_probe import SearchParts
from ..search.first_feasible import LeastMemory
from ..search.incumbents import Incumbents
from ..search.proof import Improvements, Proof
from ..search.roles import Progress, Refinement
from ..search.work_limits import Limits, Quota, WorkSpent
from ..space.pipeline_shape import PipelineShape
from .uniform_heuristic import LikelyUniformPlans, UniformHeuristic
from .uniform_plans import UniformShapePlans
from .uniform_strategies import UniformStrategies

SHAPES, PLANS = 120, 24
"""Shapes whose plans are estimated, and plans tried, before the proof."""
PlausibleShapes = Callable[[], Iterable[PipelineShape]]
PROOF = Quota(enumerated=4_000_000, tries=4000, simulated=800)


class UniformPlanCache:
    """Uniform plans by shape, each made once."""

    def __init__(self, values: ShapeValues) -> None:
        self._bounds = values.bounds
        self._strategies = UniformStrategies(values.bounds.tables.space)
        self._plans: dict[PipelineShape, UniformShapePlans] = {}

    def __call__(self, shape: PipelineShape) -> UniformShapePlans:
        """The plans of a shape."""
        if shape not in self._plans:
            self._plans[shape] = UniformShapePlans(self._bounds, self._strategies, shape)
        return self._plans[shape]


class UniformBounds(ListedBounds):
    """Bounds of shapes: quick, then the least of their uniform plans'."""

    def __init__(
        self, values: ShapeValues, plans: UniformPlanCache, incumbents: Incumbents
    ) -> None:
        super().__init__(values)
        self._plans = plans
        self._incumbents = incumbents

    @property
    def refinements(self) -> Sequence[Refinement]:
        """The least bound of a shape's plans."""
        return (self.exact,)

    def exact(self, shape: PipelineShape) -> float:
        """Least bound of a shape's plans, as a value."""
        self._incumbents.check_deadline()
        plans, least_s = self._plans(shape), float("inf")
        for boundaries in plans.boundaries() if plans.count else ():
            least_s = min(least_s, float(plans.bounds_s(boundaries).min()))
        return least_s * self._values.factor(shape)


class FirstUniform:
    """Some uniform plan that fits, of shapes with the fewest idle devices."""

    def __init__(
        self,
        likely: LikelyUniformPlans,
        plausible: PlausibleShapes,
        incumbents: Incumbents,
    ) -> None:
        self._likely = likely
        self._plausible = plausible
        self._incumbents = incumbents

    def run(self) -> None:
        """Try plausible shapes until a plan fits."""
        self._likely.first(self._plausible())
        self._incumbents.sought_feasible = True
        self._incumbents.check_deadline()


class UniformParts:
    """Parts of a search for uniform plans, with the arguments of ``SingleGroupParts``."""

    def __init__(
        self,
        evaluator: Evaluator,
        limits: Limits,
        progress: Progress | None = None,
        best_value: float = float("inf"),
    ) -> None:
        self.bounds = shape_bounds(evaluator)
        self._limits = limits
        self._space = self.bounds.tables.space
        self._evaluator = evaluator
        self._values = ShapeValues(self.bounds, evaluator)
        self._progress = progress or (lambda seen, total, best: None)
        self._plans = UniformPlanCache(self._values)
        self._budget_bytes = self.bounds.contexts.live_budget_bytes
        self.incumbents = Incumbents(
            evaluator,
            legality_in(self._space),
            self._space.gpipe_variant,
            alternatives=limits.alternatives,
            deadline_s=limits.deadline_s,
            seeks_first=best_value == float("inf"),
            best_value=best_value,
        )
        self._beats_another = best_value < float("inf")

    @cached_property
    def likely(self) -> UniformHeuristic:
        """Heuristic over the plans of a shape."""
        return UniformHeuristic(self._plans, self._budget_bytes)

    @cached_property
    def _likely_plans(self) -> LikelyUniformPlans:
        return LikelyUniformPlans(
            self.likely, self._values.quick, self.incumbents, self._budget_bytes, SHAPES, PLANS
        )

    @cached_property
    def start(self) -> FirstUniform:
        """Search for any plan that fits."""
        return FirstUniform(self._likely_plans, self._space.plausible, self.incumbents)

    @cached_property
    def least_memory(self) -> LeastMemory:
        """Search for a plan that fits in the shapes of least memory."""
        return LeastMemory(self.likely, self.incumbents, self._limits.min_memory)

    @cached_property
    def engine(self) -> BranchAndBound:
        """The engine of these parts."""
        space, incumbents, evaluator = self._space, self.incumbents, self._evaluator
        bounds = UniformBounds(self._values, self._plans, incumbents)
        work = WorkSpent(evaluator)
        enumeration = Enumeration(
            self._plans,
            incumbents,
            work,
            PROOF.enumerated,
            lambda: not space.techniques.holds_ends,
        )
        return BranchAndBound(
            space=space,
            bounds=bounds,
            heuristics=(self._likely_plans, self.least_memory),
            incumbents=incumbents,
            proof=Proof(
                bounds,
                enumeration,
                incumbents,
                lambda: work.and_more(PROOF),
                Improvements(),
                self._progress,
            ),
            start=None if self._beats_another else self.start,
            error=None
            if self._beats_another
            else lambda any_shape, nearest, late, proven: infeasible_error(
                space, any_shape, nearest, evaluator, late, proven
            ),
        )


def search_parts(
    evaluator: Evaluator,
    limits: Limits,
    progress: Progress | None = None,
    best_value: float = float("inf"),
) -> SearchParts:
    """Search over one device group: of uniform plans where the stack runs no others.

    ``best_value``: of another plan, to be beaten.
    """
    if evaluator.request.stack.limits.one_strategy:
        return UniformParts(evaluator, limits, progress, best_value)
    return SingleGroupParts(evaluator, limits, progress, best_value)
