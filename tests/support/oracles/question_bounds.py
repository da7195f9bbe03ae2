"""A question's ``lower_bound_s`` against random plans that answer it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from generators.plan_axes import axes_of
from generators.random_plans import Drawer
from generators.random_spaces import PLENTY_BYTES
from oracles.bound_checks import Tightness, note_bounds
from oracles.brute_force import Space, simulator_of
from published.planning import EQUAL, RULE, parts_of, planned

from shardwright.planner.search.work_limits import Limits, Quota
from shardwright.spec.schedules.stage_order import ALL_KINDS

PROVING = Limits(proof=Quota(400_000, 2000, 500), rest=Quota(0, 0, 0), local_search_shapes=0)
"""A short search: more of the proof, or plans after it failed, makes no bound less sound."""


@dataclass
class Questioned:
    """What became of the plans of one question.

    ``tightness`` is of the bounds of shapes and cuts, each plan on devices that hold just what it
    needs; ``fitting`` plans fit the question's own devices, and none may be below its bound.
    """

    tightness: Tightness = field(default_factory=Tightness)
    fitting: int = 0
    stopped_by: str = ""
    axes: Counter[str] = field(default_factory=Counter)


def check_question(space: Space, plans: int, seed: int) -> Questioned:
    """Draw plans, ask the planner on devices that most of them fit, hold them to its bound."""
    source = random.Random(f"question {seed}")
    drawer = Drawer(space, source, ALL_KINDS)
    bounds = parts_of(space.with_memory(PLENTY_BYTES)).bounds
    simulator = simulator_of(space)
    found, timed = Questioned(), []
    for number in range(plans):
        draft = drawer.draft()
        plan = draft.plan(space)
        if number % 20 == 0 and (violations := plan.check()):
            raise AssertionError(f"problem {seed}: an illegal plan: {violations[0]}")
        simulation = simulator.run(plan)
        assert simulation is not None
        found.axes.update(axes_of(plan))
        note_bounds(found.tightness, bounds, simulator, draft, simulation)
        need = max(row.reserved_bytes for row in simulation.memory) * RULE.margin
        timed.append((need, simulation.step_time_s, draft))
    needs = sorted(need for need, _, _ in timed)
    capacity = int(needs[int(len(needs) * source.uniform(0.5, 1))]) + 1
    answer = planned(space.with_memory(capacity), PROVING)
    fitting = [(step_s, draft) for need, step_s, draft in timed if need <= capacity]
    found.fitting = len(fitting)
    if answer is None:
        found.stopped_by = "nothing fits"
        found.tightness.faults.append(f"no plan is said to fit {capacity} bytes; {fitting[0][1]}")
        return found
    found.stopped_by = answer.stopped_by
    for step_s, draft in fitting:
        found.tightness.note("lower_bound_s", answer.lower_bound_s, step_s, draft)
        best_s = answer.outcomes[0].step_time_s
        if answer.stopped_by == "proof" and step_s < best_s * (1 - EQUAL):
            found.tightness.faults.append(f"proven {best_s} s is slower than {step_s} s of {draft}")
    return found
