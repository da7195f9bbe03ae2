"""The best plans of a search against their neighbors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

from generators.random_heterogeneous_plans import MixedDraft
from generators.random_plans import Draft
from neighbors.heterogeneous_neighbors import MIXED_STAGES, is_searched, mixed_draft_of
from neighbors.plan_moves import D
from neighbors.plan_neighbors import (
    EQUAL_STAGES,
    Neighbor,
    Sort,
    draft_of,
    in_words,
    is_cut_as_searched,
)
from neighbors.plan_neighbors import neighbor as neighbor_of
from oracles.bound_checks import ROUNDING
from oracles.brute_force import Space
from oracles.heterogeneous_bounds import mixed_search
from published.planning import EQUAL, RULE, planned, search_of

from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.planner.heterogeneous.work_limits import HeterogeneousLimits
from shardwright.planner.search.work_limits import Limits
from shardwright.spec.errors import InfeasibleError

TOP = 20


@dataclass
class Neighbors:
    """What was found beside the best plans of one question.

    ``faster`` plans beat the answer: (by how much, the plan in words). ``faults``: plans below the
    bound, or faster than an answer that is said to be proven. Plans that no search lists are
    counted apart: of large models virtual stages as even as those searched, in another order; over
    several device groups stages that are not alike where a rule wants them so.
    """

    stopped_by: str = ""
    gap: float = 0.0
    bases: int = 0
    fitting: int = 0
    too_large: int = 0
    faults: list[str] = field(default_factory=list)
    faster: list[tuple[float, str]] = field(default_factory=list)
    unlisted: int = 0
    unlisted_faults: list[str] = field(default_factory=list)
    unlisted_faster: list[tuple[float, str]] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Answered(Generic[D]):
    """A question with its answer.

    ``bound`` gives what bounds a plan and its name; ``is_listed`` says whether the search looks at
    a plan, ``proven_of_all`` whether a proof speaks of the others too.
    """

    space: Space
    simulator: Simulator
    sort: Sort[D]
    bases: Sequence[D]
    best_s: float
    bound: Callable[[D], tuple[float, str]]
    is_listed: Callable[[Space, D], bool]
    proven_of_all: bool

    def look_around(self, found: Neighbors, wanted: int, source: random.Random) -> None:
        """Hold ``wanted`` neighbors that fit against answer and bound, half of them two moves off.

        In turn of the best plans.
        """
        seen = set(self.bases)
        for number in range(20 * wanted):
            if found.fitting >= wanted or not self.bases:
                break
            base = self.bases[number // 2 % len(self.bases)]
            beside = neighbor_of(source, self.space, base, 1 + number % 2, self.sort)
            if beside is None or beside.draft in seen:
                continue
            seen.add(beside.draft)
            step_s = self._step_s(beside.draft)
            if step_s is None:
                found.too_large += 1
            else:
                self._note(found, beside, step_s)

    def _note(self, found: Neighbors, beside: Neighbor[D], step_s: float) -> None:
        """Hold one neighbor that fits against the answer and the bound."""
        found.fitting += 1
        found.moves.update([" + ".join(sorted(beside.moves))])
        listed = self.is_listed(self.space, beside.draft)
        found.unlisted += not listed
        faults = found.faults if listed else found.unlisted_faults
        what = f"{step_s:.9g} s by {' + '.join(beside.moves)}: {in_words(beside.draft)}"
        is_faster = step_s < self.best_s * (1 - EQUAL)
        if is_faster:
            faster = found.faster if listed else found.unlisted_faster
            faster.append((1 - step_s / self.best_s, what))
        bound_s, name = self.bound(beside.draft)
        if step_s < bound_s * (1 - ROUNDING):
            faults.append(f"{step_s / bound_s:.6f} of {name}; {what}")
        elif is_faster and found.stopped_by == "proof" and (listed or self.proven_of_all):
            faults.append(f"{step_s / self.best_s:.6f} of a proven answer; {what}")

    def _step_s(self, draft: D) -> float | None:
        """The simulated step; None where the plan does not fit."""
        plan = draft.plan(self.space)
        if violations := plan.check():
            raise AssertionError(f"an illegal plan: {violations[0]}; {draft}")
        simulation = self.simulator.run(plan)
        assert simulation is not None
        if max(RULE.excess_bytes(row) for row in simulation.memory) > 0:
            return None
        return float(simulation.step_time_s)


def check_neighbors(space: Space, wanted: int, seed: int) -> Neighbors:
    """Ask the planner, then hold ``wanted`` neighbors that fit against its answer and bound.

    Half of them are one move away, half two; in turn of the best plans, at most ``TOP``.
    """
    search, found = search_of(space, Limits(alternatives=TOP)), Neighbors()
    try:
        answer = search.run()
    except InfeasibleError:
        found.stopped_by = "nothing fits"
        return found
    bases = [draft_of(outcome.decision) for outcome in answer.outcomes[:TOP]]
    best_s, bound_s = answer.outcomes[0].step_time_s, answer.lower_bound_s
    found.stopped_by, found.bases, found.gap = answer.stopped_by, len(bases), best_s / bound_s - 1
    around = Answered[Draft](
        space=space,
        simulator=search.evaluator.simulator,
        sort=EQUAL_STAGES,
        bases=bases,
        best_s=best_s,
        bound=lambda draft: (bound_s, "the bound"),
        is_listed=is_cut_as_searched,
        proven_of_all=True,
    )
    around.look_around(found, wanted, random.Random(f"neighbours {seed}"))
    return found


def check_mixed_neighbors(
    space: Space,
    wanted: int,
    seed: int,
    alone_first: bool = False,
    limits: HeterogeneousLimits | None = None,
) -> Neighbors:
    """As :func:`check_neighbors`, of plans over several device groups.

    What devices do at best bounds plans that no search lists, too.

    Args:
        space: the question.
        wanted: neighbors.
        seed: of what is drawn.
        alone_first: whether plans of one group are a mark to beat, as the product asks.
        limits: of the search.
    """
    mark_s = _alone_s(space) if alone_first else float("inf")
    search = mixed_search(space, limits or HeterogeneousLimits(alternatives=TOP), mark_s)
    answer, found = search.run(), Neighbors()
    bases = [mixed_draft_of(outcome.decision) for outcome in answer.outcomes[:TOP]]
    found.stopped_by, found.bases = answer.stopped_by, len(bases)
    if not bases:
        found.stopped_by = "nothing fits" if mark_s == float("inf") else "one group is faster"
        return found
    best_s, bound_s = min(mark_s, answer.outcomes[0].step_time_s), answer.lower_bound_s
    global_bound_s = search.bounds.interrupted(None)
    found.gap = best_s / bound_s - 1

    def bound(draft: MixedDraft) -> tuple[float, str]:
        floor = (global_bound_s, "what devices do at best")
        return max((bound_s, "the bound"), floor) if is_searched(space, draft) else floor

    around = Answered[MixedDraft](
        space=space,
        simulator=search.evaluator.simulator,
        sort=MIXED_STAGES,
        bases=bases,
        best_s=best_s,
        bound=bound,
        is_listed=is_searched,
        proven_of_all=False,
    )
    around.look_around(found, wanted, random.Random(f"mixed neighbours {seed}"))
    return found


def _alone_s(space: Space) -> float:
    """The step of the best plan inside one device group; infinite where none fits."""
    names = [group.name for group in space.cluster.groups]
    each = (planned(replace(space, cluster=space.cluster.alone(name))) for name in names)
    return min((found.outcomes[0].step_time_s for found in each if found), default=float("inf"))
