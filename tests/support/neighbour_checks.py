"""The best plans of a search against their neighbours."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from bound_checks import ROUNDING
from neighbours import Neighbour, draft_of, in_words, is_cut_as_searched, neighbour
from oracle import Space
from planning import EQUAL, RULE, search_of
from random_plans import Draft

from shardwright.costmodel.simulate import Simulator
from shardwright.planner.limits import Limits
from shardwright.spec.errors import InfeasibleError

TOP = 20


@dataclass
class Neighbours:
    """What was found beside the best plans of one question.

    ``faster`` plans beat the answer: (by how much, the plan in words). ``faults``: plans below the
    bound, or faster than an answer that is said to be proven. ``other_order``: such plans of large
    models whose virtual stages are as even as those searched, in another order.
    """

    stopped_by: str = ""
    gap: float = 0.0
    bases: int = 0
    fitting: int = 0
    too_large: int = 0
    faults: list[str] = field(default_factory=list)
    other_order: list[str] = field(default_factory=list)
    faster: list[tuple[float, str]] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)

    def note(
        self, space: Space, beside: Neighbour, step_s: float, best_s: float, bound_s: float
    ) -> None:
        """Hold one neighbour that fits against the answer and the bound."""
        self.fitting += 1
        self.moves.update([" + ".join(sorted(beside.moves))])
        what = f"{step_s:.9g} s by {' + '.join(beside.moves)}: {in_words(beside.draft)}"
        if step_s < best_s * (1 - EQUAL):
            self.faster.append((1 - step_s / best_s, what))
        why = ""
        if step_s < bound_s * (1 - ROUNDING):
            why = f"{step_s / bound_s:.6f} of the bound; {what}"
        elif step_s < best_s * (1 - EQUAL) and self.stopped_by == "proof":
            why = f"{step_s / best_s:.6f} of a proven answer; {what}"
        if why:
            searched = is_cut_as_searched(space, beside.draft)
            (self.faults if searched else self.other_order).append(why)


def check_neighbours(space: Space, wanted: int, seed: int) -> Neighbours:
    """Ask the planner, then hold ``wanted`` neighbours that fit against its answer and bound.

    Half of them are one move away, half two; in turn of the best plans, at most ``TOP``.
    """
    source = random.Random(f"neighbours {seed}")
    search, found = search_of(space, Limits(alternatives=TOP)), Neighbours()
    try:
        answer = search.run()
    except InfeasibleError:
        found.stopped_by = "nothing fits"
        return found
    best_s, bound_s = answer.outcomes[0].step_time_s, answer.lower_bound_s
    found.stopped_by, found.gap = answer.stopped_by, best_s / bound_s - 1
    bases = [draft_of(outcome.decision) for outcome in answer.outcomes[:TOP]]
    found.bases = len(bases)
    seen = set(bases)
    for number in range(20 * wanted):
        if found.fitting >= wanted:
            break
        base = bases[number // 2 % len(bases)]
        beside = neighbour(source, space, base, moves=1 + number % 2)
        if beside is None or beside.draft in seen:
            continue
        seen.add(beside.draft)
        step_s = _step_s(space, search.evaluator.simulator, beside.draft)
        if step_s is None:
            found.too_large += 1
            continue
        found.note(space, beside, step_s, best_s, bound_s)
    return found


def _step_s(space: Space, simulator: Simulator, draft: Draft) -> float | None:
    """The simulated step; None where the plan does not fit."""
    plan = draft.plan(space)
    if violations := plan.check():
        raise AssertionError(f"an illegal plan: {violations[0]}; {draft}")
    simulation = simulator.run(plan)
    assert simulation is not None
    if max(RULE.excess_bytes(row) for row in simulation.memory) > 0:
        return None
    return float(simulation.step_time_s)
