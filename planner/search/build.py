"""Search over one device group: the assembled engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

from ...spec.strategy import LayerStrategy
from ..bounds.compute_bounds import ComputeBounds
from ..bounds.quick_bounds import QuickBounds
from ..bounds.shape_bounds import ShapeBounds
from ..bounds.shape_context import ShapeContexts
from ..bounds.shape_relaxations import ShapeRelaxations
from ..bounds.shape_tables import ShapeTables
from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Decision, Evaluator, Outcome
from ..candidates.infeasibility import infeasible_error
from ..candidates.tied_embeddings import legality_in
from ..heuristics.layout_by_layout import LayoutByLayout
from ..heuristics.local_search import LocalSearch
from ..heuristics.lp_rounding import LpRounding
from ..heuristics.min_memory import MinMemory
from ..heuristics.number_refinement import NumberRefinement
from ..heuristics.uniform_plan import UniformPlan
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace
from ..tables.option_table import OptionTable, OptionTables
from .branch_and_bound import BranchAndBound
from .enumeration import Enumeration, SingleGroupPlans
from .feasibility_probe import SearchParts
from .first_feasible import FirstFeasible, LeastMemory
from .incumbents import Incumbents
from .intensification import Intensification, RemainingShapes, free_bytes
from .likely_shapes import LikelyShapes
from .proof import Improvements, PlanImprovement, Proof
from .refined_bounds import RefinedBounds
from .relaxed_shapes import RoughShapes, ShapesByBound
from .result import SolveResult
from .roles import Progress, SearchHeuristic
from .shape_ranking import ShapeRanking
from .smaller_requests import SmallerRequests
from .work_limits import Limits, WorkSpent


def shape_bounds(evaluator: Evaluator) -> ShapeBounds:
    """Tables, bounds and estimates of shapes on one device group."""
    simulator, rows = evaluator.simulator, evaluator.rows
    space, contexts = SearchSpace(evaluator.request, simulator), ShapeContexts(evaluator)
    compute = ComputeBounds(space, simulator.lowering, rows.works, simulator.pricer)
    quick = QuickBounds(compute, contexts)
    tables = ShapeTables(space, OptionTables(rows, contexts.tiers), contexts)
    relaxations = ShapeRelaxations(space, rows, simulator.pricer, contexts, quick.passes_s)
    return ShapeBounds(quick, tables, contexts, relaxations)


class SingleGroupParts:
    """Parts of a search over one device group, each made on first use.

    Args:
        evaluator: of the request; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best value) now and then.
        best_value: of another plan, to be beaten: no first plan is sought, and there may be none.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limits: Limits,
        progress: Progress | None = None,
        best_value: float = float("inf"),
    ) -> None:
        self.limits = limits
        self.bounds = shape_bounds(evaluator)
        self._evaluator = evaluator
        self._progress = progress or (lambda seen, total, best: None)
        self._space = self.bounds.tables.space
        self._factor = limits.small_model_factor(len(self._space.layers))
        self._values, self._work = ShapeValues(self.bounds, evaluator), WorkSpent(evaluator)
        self._smallest = MinMemory(self.bounds.tables.layers, self.bounds.contexts.tier_budget)
        self.incumbents = Incumbents(
            evaluator,
            legality_in(self._space),
            self._space.gpipe_variant,
            alternatives=limits.alternatives,
            heuristic_passes=limits.heuristic_passes,
            deadline_s=limits.deadline_s,
            seeks_first=best_value == float("inf"),
            best_value=best_value,
        )
        self._beats_another = best_value < float("inf")

    def _layouts(self, tables: Callable[[PipelineShape], list[OptionTable]]) -> LayoutByLayout:
        return LayoutByLayout(
            self._space.layer_classes,
            tables,
            self.bounds.contexts.budget,
            self._evaluator.rule.excess_bytes,
            self.limits.heuristic_layouts * self._factor,
            self.bounds.contexts.memories,
        )

    @cached_property
    def likely(self) -> LayoutByLayout:
        """Heuristic over the usual options of a shape's layers."""
        return self._layouts(self.bounds.tables.usual)

    @cached_property
    def rounding(self) -> LpRounding:
        """Heuristic over relaxed steps."""
        excess_bytes = self._evaluator.rule.excess_bytes
        best_s, limit = self.incumbents.best_s, self.limits.relaxed
        memories = self.bounds.contexts.memories
        return LpRounding(self.bounds.relaxations, best_s, excess_bytes, limit, memories)

    @cached_property
    def ranking(self) -> ShapeRanking:
        """Shapes by estimate."""
        return ShapeRanking(self._values, self.incumbents, self.limits.estimates)

    @cached_property
    def refined(self) -> RefinedBounds:
        """Bounds by level, refined on demand."""
        return RefinedBounds(self._values, self.incumbents, self.rounding)

    @cached_property
    def likely_shapes(self) -> LikelyShapes:
        """Search of the shapes with the best estimates."""
        limits, alike = self.limits, self.limits.heuristic_shapes_alike * self._factor
        small = limits.heuristic_shapes * self._factor
        most = limits.heuristic_shapes_large if self._space.is_large else small
        return LikelyShapes(self.ranking, self.likely, self.incumbents, most, alike, self._progress)

    @cached_property
    def _large_model_heuristics(self) -> tuple[SearchHeuristic, ...]:
        limits, rounding, incumbents = self.limits, self.rounding, self.incumbents
        relaxations = self.bounds.relaxations
        return (
            RoughShapes(self.ranking, self.refined, self._values, rounding, incumbents, limits),
            ShapesByBound(
                self.refined,
                self._values,
                rounding,
                UniformPlan(relaxations),
                self._layouts(relaxations.tables),
                incumbents,
                limits.heuristic_shapes_open * self._factor,
                self._progress,
            ),
        )

    @cached_property
    def enumeration(self) -> Enumeration:
        """Enumeration of the plans of a small shape."""
        bounds = self.bounds
        return Enumeration(
            lambda shape: SingleGroupPlans(bounds, shape),
            self.incumbents,
            self._work,
            self.limits.enumerated_shape,
            lambda: not self._space.techniques.holds_ends,
        )

    @cached_property
    def intensification(self) -> Intensification:
        """Search of shapes that a failed proof leaves open."""
        evaluator, incumbents, work = self._evaluator, self.incumbents, self._work
        values, enumeration, limits = self._values, self.enumeration, self.limits
        local = LocalSearch(
            self.bounds.tables.layers, incumbents.fastest, lambda plan: free_bytes(plan, evaluator)
        )
        remaining = RemainingShapes(
            values, self.refined, enumeration, incumbents, work, limits, self._progress
        )
        return Intensification(
            values,
            self.ranking,
            self.likely,
            local,
            enumeration,
            incumbents,
            work,
            limits,
            remaining,
        )

    @property
    def improvements(self) -> Improvements:
        """Searches for better plans where nothing is proven."""
        limits = self.limits
        smaller = SmallerRequests(
            self._evaluator,
            partial(_search_smaller, replace(limits, smaller_requests=False)),
            self.incumbents,
            limits.deadline_s,
        )
        others = () if self._space.is_large else (self.intensification,)
        searches = (smaller,) if limits.smaller_requests else ()
        return Improvements(*others, *searches, PlanImprovement(self.number_refinement.run))

    @cached_property
    def number_refinement(self) -> NumberRefinement:
        """Search of the numbers between the values that options hold."""
        space = self._space

        def is_legal(layer: int, strategy: LayerStrategy, decision: Decision) -> bool:
            ranks = decision.shape.ranks
            return space.techniques.violation(space.layers[layer], strategy, ranks) is None

        families = space.techniques.free_families
        return NumberRefinement(
            families,
            space.layer_classes,
            is_legal,
            self.incumbents.ranked,
            self.incumbents.try_once,
        )

    @cached_property
    def start(self) -> FirstFeasible:
        """Search for any plan that fits."""
        memory = LeastMemory(self._smallest, self.incumbents, self.limits.min_memory_first)
        return FirstFeasible(self._values, self.likely, memory, self.incumbents, self._progress)

    @cached_property
    def least_memory(self) -> LeastMemory:
        """Search for a plan that fits in the shapes of least memory."""
        return LeastMemory(self._smallest, self.incumbents, self.limits.min_memory)

    @cached_property
    def engine(self) -> BranchAndBound:
        """The engine of these parts."""
        space, evaluator, incumbents = self._space, self._evaluator, self.incumbents
        work, proof_limits = self._work, self.limits.proof
        large = self._large_model_heuristics if space.is_large else ()
        return BranchAndBound(
            space=space,
            bounds=self.refined,
            heuristics=(self.likely_shapes, *large, self.least_memory),
            incumbents=incumbents,
            proof=Proof(
                self.refined,
                self.enumeration,
                incumbents,
                lambda: work.and_more(proof_limits),
                self.improvements,
                self._progress,
            ),
            start=None if self._beats_another else self.start,
            error=None
            if self._beats_another
            else lambda any_shape, nearest, late, proven: infeasible_error(
                space, any_shape, nearest, evaluator, late, proven
            ),
        )


def _search_smaller(
    limits: Limits, evaluator: Evaluator, left_s: float | None
) -> tuple[SolveResult, bool]:
    engine = SingleGroupParts(evaluator, replace(limits, deadline_s=left_s)).engine
    return engine.run(), engine.interrupted


def single_group_search(
    evaluator: Evaluator,
    limits: Limits | None = None,
    progress: Progress | None = None,
    watch: Callable[[BranchAndBound], None] | None = None,
) -> BranchAndBound:
    """Search for the best plan on one device group.

    Args:
        evaluator: of the request; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best value) now and then.
        watch: called after every trial; reads :meth:`BranchAndBound.current_result`.
    """
    parts = SingleGroupParts(evaluator, limits or Limits(), progress)
    watch_trials(parts, watch)
    return parts.engine


def watch_trials(parts: SearchParts, watch: Callable[[BranchAndBound], None] | None) -> None:
    """Call ``watch`` with the engine of some parts after every trial."""
    if watch is not None:
        engine = parts.engine

        def on_trial(outcome: Outcome | None) -> None:
            watch(engine)

        parts.incumbents.on_trial = on_trial
