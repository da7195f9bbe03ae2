"""Answers to what-if questions: the same plan and the best one.

The *same plan* keeps every decision, but for data parallelism on another number of devices: it
shows the effect of the change itself, and the term of the step that it moves. *Re-planned* is the
best plan of an unpinned search in the changed setting, or the same plan if nothing is faster, so
re-planning never loses. A plan that does not fit is priced all the same, with its excess.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ...costmodel.memory.feasibility import MemoryRule
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import ShardwrightError
from ...spec.plan.plan import Plan
from ...spec.report.report import MemoryRow, Prediction, SearchResult
from ..solve.solution import Solution
from .plan_difference import Difference, plan_difference
from .question import Row
from .same_plan import CannotKeepError, idle_devices, same_plan
from .setting import Change, Setting, Value

NOTHING = 1e-12
"""Share of a step below which a term has not moved: the rounding of the sum."""


class Pricing(Protocol):
    """Pricing and solving of settings, with stacks, calibrations and limits."""

    def stack(self, setting: Setting) -> StackSpec:
        """The software of a setting."""

    def price(self, plan: Plan, setting: Setting) -> Prediction:
        """The prediction of a plan, feasible or not."""

    def search(self, setting: Setting) -> Solution:
        """The solution of a setting; a ShardwrightError where there is none."""

    def rule(self, setting: Setting) -> MemoryRule:
        """Memory rule of a setting."""


class Moved(NamedTuple):
    """Breakdown term of largest change, with its signed seconds."""

    term: str
    seconds: float


class Excess(NamedTuple):
    """Memory over capacity: upper bound of the reserved bytes, less capacity."""

    stage: int
    device_group: str
    tier: str
    excess_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPlan:
    """Plan in a setting: prediction, memory over capacity, idle devices."""

    plan: Plan
    prediction: Prediction
    excess: tuple[Excess, ...] = ()
    idle_devices: int = 0

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of a step."""
        return self.prediction.step_time_s


class AnsweredRow(Protocol):
    """Part of a row kept by its answer."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Each key that differs."""

    @property
    def value(self) -> Value | None:
        """The value of the sweep; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to a row of a question.

    ``same`` or ``best`` is None if missing; ``same_why`` and ``best_why`` give the reason.
    ``moved``: the same plan against the baseline; ``best_moved``: the re-planned one against the
    same plan (or the baseline without one). ``gain``: speedup of the re-planned step less one;
    ``kept``: nothing was faster than the same plan. ``difference``: other decisions of the
    re-planned plan; ``same_difference``: what of the plan follows another number of devices, or
    another batch.
    """

    row: AnsweredRow
    same: PricedPlan | None = None
    same_why: str = ""
    moved: Moved | None = None
    best: PricedPlan | None = None
    best_why: str = ""
    best_moved: Moved | None = None
    gain: float | None = None
    kept: bool = False
    difference: tuple[Difference, ...] = ()
    same_difference: tuple[Difference, ...] = ()
    search: SearchResult | None = None


def price_plan(plan: Plan, setting: Setting, pricing: Pricing) -> PricedPlan:
    """A plan priced in a setting, feasible or not."""
    return _judged(plan, pricing.price(plan, setting), pricing.rule(setting))


def answer_row(row: Row, baseline: PricedPlan, pricing: Pricing) -> Answer:
    """Both answers to a row of a question."""
    answer = _with_same(Answer(row=row), row.setting, baseline, pricing)
    return _with_best(answer, row.setting, baseline, pricing)


def moved(before: Prediction, after: Prediction) -> Moved | None:
    """Term of largest change, the first of equals; None if none changed."""
    terms = {
        name: after.breakdown_s.get(name, 0.0) - before.breakdown_s.get(name, 0.0)
        for name in (*before.breakdown_s, *(n for n in after.breakdown_s))
    }
    most = max(terms, key=lambda name: abs(terms[name]))
    if abs(terms[most]) <= NOTHING * before.step_time_s:
        return None
    return Moved(most, terms[most])


def _with_same(answer: Answer, setting: Setting, baseline: PricedPlan, pricing: Pricing) -> Answer:
    try:
        plan = same_plan(baseline.plan, setting, pricing.stack(setting))
        same = price_plan(plan, setting, pricing)
    except (CannotKeepError, ShardwrightError) as error:
        return replace(answer, same_why=str(error))
    return replace(
        answer,
        same=same,
        moved=moved(baseline.prediction, same.prediction),
        same_difference=plan_difference(baseline.plan, plan),
    )


def _with_best(answer: Answer, setting: Setting, baseline: PricedPlan, pricing: Pricing) -> Answer:
    same = answer.same
    fits = same is not None and same.prediction.feasible
    try:
        solution = pricing.search(setting)
    except ShardwrightError as error:
        if same is None or not fits:
            return replace(answer, best_why=str(error))
        return replace(answer, best=same, best_why=str(error), kept=True, gain=0.0)
    answer = replace(answer, search=solution.search)
    best = _judged(solution.plan, solution.prediction, pricing.rule(setting))
    if same is not None and fits and same.step_time_s <= best.step_time_s:
        return replace(answer, best=same, kept=True, gain=0.0)
    reference = baseline if same is None else same
    return replace(
        answer,
        best=best,
        best_moved=moved(reference.prediction, best.prediction),
        gain=None if same is None else same.step_time_s / best.step_time_s - 1,
        difference=plan_difference(reference.plan, best.plan),
    )


def _judged(plan: Plan, prediction: Prediction, rule: MemoryRule) -> PricedPlan:
    over = tuple(_excess(row, rule) for row in prediction.memory if rule.excess_bytes(row) > 0)
    worst = tuple(sorted(over, key=lambda item: (-item.excess_bytes, item.stage)))
    return PricedPlan(
        plan=plan, prediction=prediction, excess=worst, idle_devices=idle_devices(plan)
    )


def _excess(row: MemoryRow, rule: MemoryRule) -> Excess:
    size = max(1, round(rule.excess_bytes(row)))
    return Excess(row.stage, row.device_group, row.tier, size)
