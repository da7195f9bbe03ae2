"""Branch and bound over pipeline shapes: heuristics, then proof by growing bound.

1. A feasible plan is sought in haste: an answer for a deadline, an incumbent for the rest.
2. Every legal shape is listed with a quick proven bound, refined only at the shape's turn.
3. Primal heuristics look for good plans in likely shapes.
4. Shapes are taken by growing bound. A small one is enumerated: its plans are simulated by growing
bound until the next passes the incumbent. A larger one stays open, and the least bound of the open
shapes is proven. For a small model the other shapes are then searched all the same, the likely
ones closer (intensification).

The objective is the seconds of a step times a factor of its shape; bounds and estimates are
compared in it. Space, bounds, heuristics and plans are passed to the engine, so one device group
and several are searched alike; ``build`` and ``heterogeneous.build`` assemble it.

Limits are counts of work, so equal requests give equal plans; a deadline or Ctrl-C ends the search
early with the best plan and the proven bound so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..candidates.evaluator import Evaluator, Outcome
from ..space.objective import Objective
from ..space.pipeline_shape import PipelineShape
from ..space.search_space import Request
from .incumbents import DeadlineError, Incumbents
from .node_queue import NodeQueue
from .proof import Proof
from .result import IntermediateResult, SolveResult, StoppedBy
from .roles import NodeBounds, Nodes, Refinement, SearchHeuristic, ShapeSpace, StartHeuristic

SearchError = Callable[[bool, Outcome | None, bool, bool], Exception]
"""Makes the error of a search that found nothing.

Receives whether there is any shape, the plan nearest to fitting, whether the deadline has passed,
and whether every plan was tried or ruled out.
"""


class BranchAndBound:
    """One search for the best plan of a request.

    Args:
        space: shapes to search.
        bounds: proven bounds of shapes.
        heuristics: tried in this order.
        incumbents: tries plans and keeps the best.
        proof: closes shapes by growing bound.
        start: seeks a feasible plan before shapes are listed.
        error: of a search without a plan; None: it ends with no outcomes.

    ``interrupted``: True after Ctrl-C.
    """

    def __init__(
        self,
        *,
        space: ShapeSpace,
        bounds: NodeBounds,
        heuristics: Sequence[SearchHeuristic],
        incumbents: Incumbents,
        proof: Proof,
        start: StartHeuristic | None = None,
        error: SearchError | None = None,
    ) -> None:
        self.space = space
        self.bounds = bounds
        self.heuristics = heuristics
        self.incumbents = incumbents
        self.proof = proof
        self.interrupted = False
        self._start = start
        self._error = error
        self._nodes: Nodes | None = None

    @property
    def evaluator(self) -> Evaluator:
        """Simulates decisions, each once."""
        return self.incumbents.evaluator

    @property
    def request(self) -> Request:
        """The question."""
        return self.evaluator.request

    @property
    def objective(self) -> Objective:
        """Objective to minimize."""
        return self.incumbents.objective

    @property
    def best_value(self) -> float:
        """Objective of the best plan so far; infinite before any fits."""
        return self.incumbents.best_value

    def value(self, outcome: Outcome) -> float:
        """Objective of a simulated plan."""
        return self.incumbents.value(outcome)

    def run(self) -> SolveResult:
        """Search until proof, work limit, deadline or Ctrl-C.

        Raises:
            InfeasibleError: no plan fits, no legal plan exists, or none was found in time; without
                an ``error`` the result has no outcomes instead.
        """
        is_proven = is_late = False
        lower_bound = None
        try:
            if self._start is not None:
                self._start.run()
            nodes = self.list_shapes()
            for heuristic in self.heuristics:
                heuristic.run(nodes)
            lower_bound, is_proven = self.proof.run(nodes)
        except KeyboardInterrupt:
            self.interrupted = True
        except DeadlineError:
            is_late = True
        nearest = self.incumbents.nearest_infeasible
        if not self.incumbents.outcomes and self._error is not None:
            raise self._error(bool(self._shapes), nearest, is_late, is_proven)
        if lower_bound is None:
            lower_bound = self._current_bound()
        is_early = is_late or self.interrupted
        return self._result(lower_bound, _stopped_by(is_early, is_proven))

    def list_shapes(self) -> Nodes:
        """List all shapes with their quick bounds, once."""
        if self._nodes is not None:
            return self._nodes
        shapes, quick = list[PipelineShape](), list[float]()
        for shape in self.space.shapes():
            self.incumbents.check_deadline()
            shapes.append(shape)
            quick.append(self.bounds.quick(shape))
        refinements = [_by_number(refine, shapes) for refine in self.bounds.refinements]
        queue = NodeQueue([(bound, n) for n, bound in enumerate(quick)], *refinements)
        self._nodes = Nodes(shapes=shapes, quick=quick, queue=queue)
        return self._nodes

    @property
    def _shapes(self) -> list[PipelineShape]:
        return [] if self._nodes is None else self._nodes.shapes

    def _result(self, lower_bound: float, stopped_by: StoppedBy) -> SolveResult:
        outcomes = self.incumbents.ranked()
        lower_bound = min(lower_bound, self.best_value)
        best = outcomes[0] if outcomes else None
        return SolveResult(
            outcomes=outcomes,
            lower_bound=lower_bound,
            lower_bound_s=self.bounds.seconds(lower_bound, self._shapes, best),
            stopped_by=stopped_by,
            simulated=self.evaluator.count,
            shapes=self._shapes or [o.decision.shape for o in outcomes],
            seconds=time.monotonic() - self.incumbents.start_s,
            nearest=self.incumbents.nearest_infeasible,
        )

    def current_result(self) -> IntermediateResult | None:
        """Best plan and proven bound so far; None before any plan fits."""
        best = self.incumbents.best()
        if best is None:
            return None
        value = self.value(best)
        bound = min(self._current_bound(), value)
        bound_s = self.bounds.seconds(bound, self._shapes, best)
        return IntermediateResult(
            outcome=best, value=value, lower_bound=bound, lower_bound_s=bound_s
        )

    def _current_bound(self) -> float:
        if self._nodes is None:
            return self.bounds.interrupted(None)
        return self.bounds.interrupted(max(self._nodes.queue.least, self.proof.proven_value))


def _by_number(refine: Refinement, shapes: list[PipelineShape]) -> Callable[[int], float]:
    return lambda number: refine(shapes[number])


def _stopped_by(is_early: bool, is_proven: bool) -> StoppedBy:
    if is_early:
        return "deadline"
    return "proof" if is_proven else "work"
