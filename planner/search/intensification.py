"""Better plans in shapes left open by a failed proof, by quota.

Bounds of an open shape's thousands of plans say little of the best; estimates are a few per cent
wrong, but nearer. So the shapes with the best estimates, and those of the best plans, are searched
each by itself: likely plans, then changes of the best (local search), even if slower than a plan
of another shape. Equal numbers are searched for every device count, so that with more memory, or
idle devices, plans of one count hide few of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from ..bounds.shape_values import ShapeValues
from ..candidates.evaluator import Decision, Evaluator, Outcome
from ..heuristics.heuristic import Heuristic
from ..space.memory_budget import tier_capacities
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats
from .enumeration import ROUNDING, Enumeration
from .incumbents import Incumbents
from .likely_shapes import ESTIMATE_WITHIN
from .node_queue import BoundedNode, NodeQueue
from .refined_bounds import RefinedBounds
from .roles import Nodes, Progress
from .shape_ranking import ShapeRanking
from .work_limits import Limits, Quota, WorkSpent

START_WITHIN = 1.5
"""Shapes whose likely plans all are slower than the best by this factor are left at that."""
NEAR_WITHIN, NEAR_AFTER = 1.05, 50
"""So near to the best plan those of a shape are after so many simulations, or it is left."""


class RemainingShapes:
    """Small shapes not reached by a failed proof, most devices first.

    They no longer prove anything, so a small number of simulations suffices, equal for every
    device count: with idle devices allowed, a larger cluster then searches all that a smaller one
    would. A shape has a part of it, lest thousands of near-equal plans leave nothing to the next.
    """

    def __init__(
        self,
        values: ShapeValues,
        bounds: RefinedBounds,
        enumeration: Enumeration,
        incumbents: Incumbents,
        work: WorkSpent,
        limits: Limits,
        progress: Progress,
    ) -> None:
        self._values = values
        self._bounds = bounds
        self._enumeration = enumeration
        self._incumbents = incumbents
        self._work = work
        self._limits = limits
        self._progress = progress

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Enumerate shapes outside the numbers ``done``."""
        tables, most = self._values.bounds.tables, self._limits.enumerated_shape
        groups: dict[int, list[BoundedNode]] = {}
        for number, shape in enumerate(nodes.shapes):
            if number not in done and tables.plan_count(shape) <= most:
                bound = self._values.quick(shape)
                groups.setdefault(shape.stages * shape.ranks, []).append((bound, number))
        for devices in sorted(groups, reverse=True):
            self._enumerate(nodes.shapes, groups[devices], len(done))

    def _enumerate(
        self, shapes: Sequence[PipelineShape], group: list[BoundedNode], done: int
    ) -> None:
        """Enumerate shapes of one device count."""
        quota, incumbents = self._work.and_more(self._limits.rest), self._incumbents
        for bound, number in NodeQueue(group, lambda number: self._bounds.exact(shapes[number])):
            is_past = bound >= incumbents.best_value * (1 - ROUNDING)
            if is_past or self._work.has_spent(quota):
                break
            self._progress(done, len(shapes), incumbents.best_value)
            of_shape = self._work.and_more(self._limits.rest_of_shape)
            self._enumeration.run(shapes[number], Quota(*map(min, quota, of_shape)))


class Intensification:
    """Closer search of the likely shapes of the best plan."""

    def __init__(
        self,
        values: ShapeValues,
        ranking: ShapeRanking,
        likely: Heuristic,
        local_search: Heuristic,
        enumeration: Enumeration,
        incumbents: Incumbents,
        work: WorkSpent,
        limits: Limits,
        remaining: RemainingShapes,
    ) -> None:
        self._values = values
        self._ranking = ranking
        self._likely = likely
        self._local_search = local_search
        self._enumeration = enumeration
        self._incumbents = incumbents
        self._work = work
        self._limits = limits
        self._remaining = remaining

    def run(self, nodes: Nodes, done: set[int]) -> None:
        """Enumerate the remaining small shapes, then intensify."""
        self._remaining.run(nodes, done)
        self.intensify(nodes)

    def intensify(self, nodes: Nodes) -> None:
        """Search the shapes of the best plans and of the best estimates."""
        likely = [*self._best_shapes(), *self._likely_shapes(nodes.shapes)]
        for shape in list(dict.fromkeys(likely)):
            if self._may_hold_better(shape):
                self.search(shape)

    def _may_hold_better(self, shape: PipelineShape) -> bool:
        is_open = shape not in self._enumeration.whole
        return is_open and self._values.quick(shape) < self._incumbents.best_value

    def _best_shapes(self) -> Iterator[PipelineShape]:
        shapes = dict.fromkeys(outcome.decision.shape for outcome in self._incumbents.ranked())
        return islice(filter(self._may_hold_better, shapes), self._limits.local_search_shapes)

    def _likely_shapes(self, shapes: Sequence[PipelineShape]) -> Iterator[PipelineShape]:
        most, taken = self._limits.local_search_shapes, Counter[int]()
        for estimate, number in self._ranking.estimated(shapes):
            shape = shapes[number]
            if estimate > self._incumbents.best_value * ESTIMATE_WITHIN:
                break
            if taken[shape.devices] < most and self._may_hold_better(shape):
                taken[shape.devices] += 1
                yield shape

    def search(self, shape: PipelineShape) -> None:
        """Try likely plans of a shape, and changes of the best."""
        incumbents, evaluator = self._incumbents, self._incumbents.evaluator
        quota, best_s = self._work.and_more(self._limits.local_search), incumbents.best_s(shape)
        first = evaluator.count + NEAR_AFTER
        outcomes = incumbents.of_shape(shape)

        def attempt(decision: Decision, cutoff_s: float = float("inf")) -> Outcome | None:
            is_far = evaluator.count >= first and _least_s(outcomes) > best_s * NEAR_WITHIN
            if is_far or self._work.has_spent(quota):
                return None
            outcome = incumbents.try_likely(decision, cutoff_s, keeps_schedule=True)
            if outcome is not None and outcome.feasible:
                outcomes.append(outcome)
            return outcome

        self._likely.search(shape, attempt)
        if outcomes and _least_s(outcomes) <= best_s * START_WITHIN:
            self._local_search.search(shape, attempt)


def free_bytes(outcome: Outcome, evaluator: Evaluator) -> Floats:
    """Free bytes of a feasible plan on devices and granted tiers, shape (memories, stages)."""
    memory = evaluator.request.cluster.groups[0].memory
    capacities = {"hbm": memory.hbm_bytes} | tier_capacities(memory)
    free = np.repeat(
        np.array([*capacities.values()], dtype=np.float64)[:, None],
        outcome.decision.shape.stages,
        axis=1,
    )
    numbers = {tier: number for number, tier in enumerate(capacities)}
    for row in outcome.simulation.memory:
        if row.tier in numbers:
            free[numbers[row.tier], row.stage] = -evaluator.rule.excess_bytes(row)
    return free


def _least_s(outcomes: Sequence[Outcome]) -> float:
    return min((outcome.step_time_s for outcome in outcomes), default=float("inf"))
