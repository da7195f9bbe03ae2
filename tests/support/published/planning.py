"""Asking the planner what the oracle was asked, and holding one answer against the other."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from generators.random_spaces import random_cap, random_space
from oracles.brute_force import Answer, Restriction, Space, simulator_of, solve

from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.planner.candidates.evaluator import Decision, Evaluator
from shardwright.planner.search.branch_and_bound import BranchAndBound
from shardwright.planner.search.build import SingleGroupParts
from shardwright.planner.search.result import SolveResult
from shardwright.planner.search.work_limits import Limits
from shardwright.planner.space.pins import Pin
from shardwright.planner.space.search_space import Request
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.technique import OFF

RULE = MemoryRule()
EQUAL = 1e-9


def request_of(space: Space, **asked: Any) -> Request:
    """The planner's request: pins for one value, lists of values for several."""
    values: dict[str, tuple[Any, ...]] = {}
    pins: list[Pin] = []
    for r in space.restrictions:
        if r.axis in space.tried:
            continue
        if r.layers is not None or _odd(r):
            pins.append(Pin(key=r.axis, value=r.allowed[0], layers=r.layers))
        else:
            values[r.axis] = r.allowed
    spoken = {r.axis for r in space.restrictions}
    tried = (choice for value, choice in space.techniques.plannable if value.program is None)
    # A technique is off in the brute force of a space that does not speak of it.
    values |= {c.name: (OFF,) for c in tried if c.tries_any and c.name not in spoken}
    return Request(
        model=space.model,
        cluster=space.cluster,
        workload=space.workload,
        stack=space.stack,
        pins=tuple(pins),
        values=values,
        techniques=space.techniques,
        program=dict(space.program),
        nested_degrees=space.nested,
        **asked,
    )


def _odd(r: Restriction) -> bool:
    """Some one-valued restrictions are put as pins, so that both ways in are tried."""
    return len(r.allowed) == 1 and (len(r.axis) + len(str(r.allowed[0]))) % 2 == 1


def parts_of(space: Space, limits: Limits | None = None, **asked: Any) -> SingleGroupParts:
    """The parts of a search of a space, and their engine."""
    evaluator = Evaluator(request_of(space, **asked), simulator_of(space), RULE)
    return SingleGroupParts(evaluator, limits or Limits())


def search_of(space: Space, limits: Limits | None = None, **asked: Any) -> BranchAndBound:
    return parts_of(space, limits, **asked).engine


def planned(space: Space, limits: Limits | None = None, **asked: Any) -> SolveResult | None:
    """What the planner finds; None where it says that nothing fits."""
    try:
        return search_of(space, limits, **asked).run()
    except InfeasibleError:
        return None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One space: what the oracle and the planner say of it.

    ``block_kinds``: different blocks of the model. ``uneven``: whether the planner's stages differ
    in their layers; over several device groups, in their devices or in shares of the batch.
    ``best_any_host_s``: with any memory of the hosts.
    """

    seed: int
    plans: int
    feasible: int
    simulated: int
    best_s: float
    best_unlimited_s: float
    best_uniform_s: float
    planned_s: float
    lower_bound_s: float
    stopped_by: str
    experts: bool = False
    towers: bool = False
    block_kinds: int = 1
    uneven: bool = False
    best_any_host_s: float = 0.0

    @property
    def host_binds(self) -> bool:
        """Whether the plan that would be fastest does not fit its hosts."""
        return self.best_s > self.best_any_host_s * (1 + EQUAL)

    @property
    def memory_binds(self) -> bool:
        """Whether the fastest plan does not fit."""
        return self.best_s > self.best_unlimited_s * (1 + EQUAL)

    @property
    def uniform_loses(self) -> bool:
        """Whether no uniform plan is as fast as the best one."""
        return self.best_uniform_s > self.best_s * (1 + EQUAL)

    @property
    def faults(self) -> list[str]:
        """What the planner got wrong."""
        found = []
        if not _same(self.planned_s, self.best_s):
            found.append(f"planned {self.planned_s} s, the oracle {self.best_s} s")
        if self.lower_bound_s > self.best_s * (1 + EQUAL):
            found.append(f"lower bound {self.lower_bound_s} s above the best {self.best_s} s")
        if self.planned_s < math.inf:
            if self.stopped_by != "proof":
                found.append(f"stopped by {self.stopped_by}")
            if not _same(self.lower_bound_s, self.planned_s):
                found.append(f"a gap: {self.lower_bound_s} s below {self.planned_s} s")
        return found


def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= EQUAL * min(a, b)


def compare(seed: int, space: Space, answer: Answer, capacity_bytes: int) -> Comparison:
    """The planner against a solved space at one memory capacity."""
    found = planned(space.with_memory(capacity_bytes))
    best = found.outcomes[0] if found else None
    if best is not None and (violations := best.plan.check(space.techniques.values)):
        raise AssertionError(f"space {seed}: an illegal plan: {violations[0]}")
    host_bytes = min(group.memory.host_bytes or 0 for group in space.cluster.groups)
    return Comparison(
        seed=seed,
        plans=len(answer.plans),
        feasible=answer.feasible_count(capacity_bytes, RULE),
        simulated=found.simulated if found else 0,
        best_s=answer.best_s(capacity_bytes, RULE, host_bytes=host_bytes),
        best_unlimited_s=answer.best_s(math.inf, RULE),
        best_uniform_s=answer.best_s(capacity_bytes, RULE, uniform=True, host_bytes=host_bytes),
        planned_s=best.step_time_s if best else math.inf,
        lower_bound_s=found.lower_bound_s if found else 0.0,
        stopped_by=found.stopped_by if found else "nothing fits",
        experts=any(experts_of(layer) for layer in space.model.kinds()),
        towers=len(space.model.towers) > 1,
        block_kinds=block_kinds(space),
        uneven=best is not None and _is_uneven(best.decision),
        best_any_host_s=answer.best_s(capacity_bytes, RULE),
    )


def block_kinds(space: Space) -> int:
    """How many different blocks the model has."""
    return sum(isinstance(layer, BlockLayer) for layer in space.model.kinds())


def _is_uneven(decision: Decision) -> bool:
    """Whether chunks differ by more than a layer."""
    sizes = [b - a for a, b in pairwise(decision.boundaries)]
    return max(sizes) - min(sizes) > 1


def compare_seed(seed: int, most: int = 6000) -> Comparison:
    """Solve a random space and hold the planner against it."""
    return compare_drawn(seed, random_space(seed, most))


def compare_drawn(seed: int, space: Space) -> Comparison:
    """Solve a space and hold the planner against it, under a memory cap of its seed."""
    answer = solve(space)
    return compare(seed, space, answer, random_cap(random.Random(f"cap {seed}"), answer, RULE))
