"""SizePoint: a number of devices with its plan, days, cost and proven bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.explain.breakdown import predict
from ...costmodel.explain.step_cost import with_cost, with_training
from ...planner.candidates.evaluator import Evaluator
from ...planner.solve.engine import make_evaluator
from ...planner.solve.options import SolveOptions
from ...planner.solve.problem import Problem
from ...planner.solve.solve import solve
from ...planner.uniform.quick_plan import quick_plan
from ...spec.errors import InfeasibleError, InputError
from ...spec.plan.plan import Plan
from ...spec.plan.shape_text import shape_text
from ...spec.report.report import Prediction
from ..problem.resolve import Inputs, resolve

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """A number of devices; ``plan`` and ``prediction`` are None where nothing was found to fit.

    ``searched``: by a full search, else the best of the usual uniform plans. No plan of the space
    takes fewer seconds a step than ``bound_s``. ``why``: what stands in its way.
    """

    devices: int
    tokens: int
    problem: Problem | None
    plan: Plan | None = None
    prediction: Prediction | None = None
    bound_s: float = 0.0
    searched: bool = False
    proven: bool = False
    why: str = ""

    @property
    def time_s(self) -> float | None:
        """Seconds of the whole training, steps alone."""
        training = None if self.prediction is None else self.prediction.training
        return None if training is None else training.time_s

    @property
    def cost(self) -> float | None:
        """Cost of the whole training, None without prices."""
        training = None if self.prediction is None else self.prediction.training
        return None if training is None else training.cost

    @property
    def least_time_s(self) -> float:
        """Seconds that no plan of the space beats."""
        if self.problem is None:
            return float("inf")
        return -(-self.tokens // self.problem.workload.tokens_per_step) * self.bound_s

    @property
    def least_cost(self) -> float | None:
        """Cost that no plan on all the devices beats, None without prices."""
        if self.cost is None or self.time_s is None:
            return None
        return self.cost * self.least_time_s / self.time_s

    def meets(self, within_s: float | None, budget: float | None) -> bool:
        """True if its plan is done in time and within the budget."""
        if self.time_s is None or (within_s is not None and self.time_s > within_s):
            return False
        return budget is None or (self.cost is not None and self.cost <= budget)

    def may_meet(self, within_s: float | None, budget: float | None) -> bool:
        """True if no bound rules out that a plan meets both."""
        if self.problem is None or (within_s is not None and self.least_time_s > within_s):
            return False
        return budget is None or self.least_cost is None or self.least_cost <= budget

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form."""
        time_s, prediction = self.time_s, self.prediction
        found = prediction is not None
        return {
            "devices": self.devices,
            "global_batch": None if self.problem is None else self.problem.workload.global_batch,
            "feasible": found,
            "searched": self.searched,
            "proven": self.proven,
            "time_s": time_s,
            "days": None if time_s is None else time_s / DAY_S,
            "least_days": None if self.problem is None else self.least_time_s / DAY_S,
            "device_hours": None if time_s is None else time_s * self.devices / 3600,
            "cost": self.cost,
            "step_time_s": None if prediction is None else prediction.step_time_s,
            "lower_bound_s": self.bound_s or None,
            "mfu": None if prediction is None else prediction.mfu,
            "tokens_per_s": None if prediction is None else prediction.tokens_per_s,
            "plan": None if self.plan is None else self.plan.to_document(),
            "plan_hash": None if self.plan is None else self.plan.hash,
            "shape": None if self.plan is None else shape_text(self.plan),
            "why": self.why,
        }


class QuickPoints:
    """Points of one question, each of which reuses the prices of the last."""

    def __init__(self) -> None:
        self._last: Evaluator | None = None

    def point(self, inputs: Inputs, devices: int, tokens: int) -> SizePoint:
        """The point of so many devices, as :func:`quick_point`."""
        problem = resolve(inputs)
        self._last = evaluator = make_evaluator(problem, like=self._last)
        return _point(problem, evaluator, devices, tokens)


def quick_point(inputs: Inputs, devices: int, tokens: int) -> SizePoint:
    """The best of the usual uniform plans, with a bound on every plan.

    Args:
        inputs: the question on so many devices.
        devices: their number.
        tokens: of the training.

    Raises:
        InputError: a question that cannot be asked on any number of devices.
    """
    return QuickPoints().point(inputs, devices, tokens)


def _point(problem: Problem, evaluator: Evaluator, devices: int, tokens: int) -> SizePoint:
    quick = quick_plan(evaluator)
    if not quick.has_shapes:
        why = "no legal plan: more devices than samples, layers and heads share"
        return SizePoint(devices=devices, tokens=tokens, problem=None, why=why)
    point = SizePoint(devices=devices, tokens=tokens, problem=problem, bound_s=quick.bound_s)
    best = quick.outcome
    if best is None:
        return replace(point, why="no usual plan fits in memory")
    prediction = predict(best.plan, best.simulation, evaluator.simulator, evaluator.rule)
    return _with_training(replace(point, plan=best.plan), prediction)


def searched_point(point: SizePoint, deadline_s: float) -> SizePoint:
    """The same number of devices, searched in full; the quick plan where that is no slower.

    Args:
        point: with a problem.
        deadline_s: for the search.
    """
    problem = point.problem
    if problem is None:
        return point
    try:
        solution = solve(problem, SolveOptions(top=0, deadline_s=deadline_s))
    except InfeasibleError as error:
        return replace(point, searched=True, why=str(error))
    except InputError as error:
        return replace(point, why=str(error))
    search, found = solution.search, solution.prediction
    proven = search.stopped_by == "proof"
    bound_s = max(point.bound_s, search.lower_bound_s)
    made = replace(point, bound_s=bound_s, searched=True, proven=proven, why="")
    kept = point.prediction
    if kept is not None and kept.step_time_s <= found.step_time_s:
        return made
    return _with_training(replace(made, plan=solution.plan), found)


def _with_training(point: SizePoint, prediction: Prediction) -> SizePoint:
    if point.plan is None or point.problem is None:
        raise RuntimeError("a priced point has a plan")
    priced = with_cost(prediction, point.plan, point.problem.prices)
    return replace(point, prediction=with_training(priced, point.plan, point.tokens))
