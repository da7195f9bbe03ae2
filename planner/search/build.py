"""Search over one device group: the assembled engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..bounds.compute_bounds import ComputeBounds
from ..bounds.quick_bounds import QuickBounds
from ..bounds.shape_bounds import ShapeBounds
from ..bounds.shape_context import ShapeContexts
from ..bounds.shape_relaxations import ShapeRelaxations
from ..bounds.shape_tables import ShapeTables
from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Evaluator, Outcome
from ..candidates.infeasibility import infeasible_error
from ..candidates.tied_embeddings import legality_in
from ..heuristics.layout_by_layout import LayoutByLayout
from ..heuristics.local_search import LocalSearch
from ..heuristics.lp_rounding import LpRounding
from ..heuristics.min_memory import MinMemory
from ..heuristics.uniform_plan import UniformPlan
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import SearchSpace
from ..tables.option_table import OptionTable, OptionTables
from .branch_and_bound import BranchAndBound
from .enumeration import Enumeration, SingleGroupPlans
from .first_feasible import FirstFeasible, LeastMemory
from .incumbents import Incumbents
from .intensification import Intensification, RemainingShapes, free_bytes
from .likely_shapes import LikelyShapes
from .proof import Proof
from .refined_bounds import RefinedBounds
from .relaxed_shapes import RoughShapes, ShapesByBound
from .roles import Progress, SearchHeuristic
from .shape_ranking import ShapeRanking
from .work_limits import Limits, WorkSpent


def shape_bounds(evaluator: Evaluator) -> ShapeBounds:
    """Tables, bounds and estimates of shapes on one device group."""
    space, contexts = SearchSpace(evaluator.request), ShapeContexts(evaluator)
    simulator, rows = evaluator.simulator, evaluator.rows
    compute = ComputeBounds(space, simulator.lowering, rows.works, simulator.pricer)
    quick = QuickBounds(compute, contexts)
    tables = ShapeTables(space, OptionTables(rows), contexts)
    relaxations = ShapeRelaxations(space, rows, simulator.pricer, contexts, quick.passes_s)
    return ShapeBounds(quick, tables, contexts, relaxations)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleGroupParts:
    """Parts of a search over one device group, and their engine.

    ``likely``: heuristic over the usual options of layers.
    """

    bounds: ShapeBounds
    incumbents: Incumbents
    ranking: ShapeRanking
    likely: LayoutByLayout
    likely_shapes: LikelyShapes
    rounding: LpRounding
    start: FirstFeasible
    enumeration: Enumeration
    intensification: Intensification
    engine: BranchAndBound


def single_group_parts(
    evaluator: Evaluator,
    limits: Limits,
    progress: Progress | None = None,
) -> SingleGroupParts:
    """Assemble a search over one device group.

    Args:
        evaluator: of the request; simulates decisions once.
        limits: work limits.
        progress: called with (shapes seen, shapes in all, best value) now and then.
    """
    progress = progress or (lambda seen, total, best: None)
    bounds = shape_bounds(evaluator)
    space, rule = bounds.tables.space, evaluator.rule
    values, work = ShapeValues(bounds, evaluator), WorkSpent(evaluator)
    incumbents = Incumbents(
        evaluator,
        legality_in(space),
        space.gpipe_variant,
        alternatives=limits.alternatives,
        heuristic_passes=limits.heuristic_passes,
        deadline_s=limits.deadline_s,
        seeks_first=True,
    )
    factor = limits.small_model_factor(len(space.layers))

    def layouts(tables: Callable[[PipelineShape], list[OptionTable]]) -> LayoutByLayout:
        return LayoutByLayout(
            space.layer_classes,
            tables,
            bounds.contexts.live_budget_bytes,
            rule.excess_bytes,
            limits.heuristic_layouts * factor,
        )

    likely, smallest = layouts(bounds.tables.usual), MinMemory(bounds.tables.layers)
    rounding = LpRounding(bounds.relaxations, incumbents.best_s, rule.excess_bytes, limits.relaxed)
    refined = RefinedBounds(values, incumbents, rounding)
    ranking = ShapeRanking(values, incumbents, limits.estimates)
    most = limits.heuristic_shapes_large if space.is_large else limits.heuristic_shapes * factor
    likely_shapes = LikelyShapes(
        ranking, likely, incumbents, most, limits.heuristic_shapes_alike * factor, progress
    )
    large: tuple[SearchHeuristic, ...] = (
        RoughShapes(ranking, refined, values, rounding, incumbents, limits),
        ShapesByBound(
            refined,
            values,
            rounding,
            UniformPlan(bounds.relaxations),
            layouts(bounds.relaxations.tables),
            incumbents,
            limits.heuristic_shapes_open * factor,
            progress,
        ),
    )
    enumeration = Enumeration(
        lambda shape: SingleGroupPlans(bounds, shape), incumbents, work, limits.enumerated_shape
    )
    local = LocalSearch(
        bounds.tables.layers, incumbents.fastest, lambda plan: free_bytes(plan, evaluator)
    )
    remaining = RemainingShapes(values, refined, enumeration, incumbents, work, limits, progress)
    intensification = Intensification(
        values, ranking, likely, local, enumeration, incumbents, work, limits, remaining
    )
    first_memory = LeastMemory(smallest, incumbents, limits.min_memory_first)
    start = FirstFeasible(values, likely, first_memory, incumbents, progress)
    engine = BranchAndBound(
        space=space,
        bounds=refined,
        heuristics=(
            likely_shapes,
            *(large if space.is_large else ()),
            LeastMemory(smallest, incumbents, limits.min_memory),
        ),
        incumbents=incumbents,
        proof=Proof(
            refined,
            enumeration,
            incumbents,
            lambda: work.and_more(limits.proof),
            None if space.is_large else intensification,
            progress,
        ),
        start=start,
        error=lambda any_shape, nearest, late, proven: infeasible_error(
            space, any_shape, nearest, evaluator, late, proven
        ),
    )
    return SingleGroupParts(
        bounds=bounds,
        incumbents=incumbents,
        ranking=ranking,
        likely=likely,
        likely_shapes=likely_shapes,
        rounding=rounding,
        start=start,
        enumeration=enumeration,
        intensification=intensification,
        engine=engine,
    )


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
    parts = single_group_parts(evaluator, limits or Limits(), progress)
    engine = parts.engine
    if watch is not None:

        def on_trial(outcome: Outcome | None) -> None:
            watch(engine)

        parts.incumbents.on_trial = on_trial
    return engine
