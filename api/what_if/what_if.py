"""Answers to what-if questions for command line, service and Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...costmodel.memory.feasibility import MemoryRule
from ...costmodel.pricing.machine import Machine
from ...datasets.catalogue.device import device
from ...datasets.catalogue.device_formats import require_dtype, require_format
from ...datasets.clusters.parsed_cluster import expansion
from ...planner.solve.options import ProgressCallback, SolveOptions
from ...planner.solve.problem import Problem
from ...planner.solve.solution import Solution
from ...planner.solve.solve import solve
from ...planner.what_if.answer import Answer, PricedPlan, answer_row, price_plan
from ...planner.what_if.question import Question, Row, rows_of
from ...planner.what_if.setting import Setting, group_names
from ...spec.cluster.measured import Measured, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.plan.relative_position_bias import table_blocks
from ...spec.report.report import Assumption, Prediction, Provenance, Report
from ..planning.report import simulate_plan
from ..problem.resolve import Inputs, plan_pricing, pricing_on

PATH_OF_FLAG = {"--stack": "stack", "--attention": "stack.attention", "--overlap": "stack.overlap"}
"""Keys of what other verbs have flags for, by flag."""
RowCallback = Callable[[int, int], None]
SearchBudget = Callable[[int], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Whole answer: the unchanged plan, and every row of the question."""

    question: Question
    baseline: PricedPlan
    answers: tuple[Answer, ...]
    assumptions: tuple[Assumption, ...]
    provenance: Provenance


@dataclass(slots=True)
class _ResolvedStack:
    stack: StackSpec
    measured: Measured | None
    notes: tuple[Assumption, ...]


class SettingPricing:
    """Pricing and solving of settings, as of every other verb.

    Args:
        inputs: stack, attention, overlap and calibration, unless the question changes them.
        risk: accepted chance of running out of memory.
        deadline_s: returns the seconds for a row's search; None: no limit.
        progress: of each search.
    """

    def __init__(
        self,
        inputs: Inputs,
        risk: float,
        deadline_s: Callable[[], float | None],
        progress: ProgressCallback | None = None,
    ) -> None:
        self._inputs, self._risk = inputs, risk
        self._deadline_s, self._progress = deadline_s, progress
        self._stacks: dict[tuple[object, ...], _ResolvedStack] = {}

    def resolved_stack(self, setting: Setting) -> _ResolvedStack:
        """Stack and measurements of a setting, resolved once.

        Raises:
            InputError: an unknown name, or a calibration for something else.
        """
        words: Mapping[str, str] = setting.words
        hardware = (setting.cluster, setting.workload.dtype)
        biased = bool(table_blocks(setting.model))
        key = (*hardware, biased, tuple(sorted(words.items())))
        if key not in self._stacks:
            inputs = replace(self._inputs, **words)  # type: ignore[arg-type]
            self._stacks[key] = _ResolvedStack(*pricing_on(*hardware, inputs, biased))
        return self._stacks[key]

    def stack(self, setting: Setting) -> StackSpec:
        """The software of a setting."""
        return self.resolved_stack(setting).stack

    def rule(self, setting: Setting) -> MemoryRule:
        """The rule by which memory fits."""
        return MemoryRule(self._risk).measured_by(self.resolved_stack(setting).measured)

    def price(self, plan: Plan, setting: Setting) -> Prediction:
        """The prediction of a plan, feasible or not."""
        return self.simulated(plan, setting).prediction

    def simulated(self, plan: Plan, setting: Setting) -> Report:
        """The report of a plan in a setting."""
        resolved = self.resolved_stack(setting)
        pricing = (resolved.stack, resolved.measured, resolved.notes, self._risk, setting.rates)
        return simulate_plan(plan, *pricing).report

    def search(self, setting: Setting) -> Solution:
        """Search for a setting's solution.

        Raises:
            InfeasibleError: nothing fits.
        """
        resolved = self.resolved_stack(setting)
        problem = Problem(
            model=setting.model,
            cluster=setting.cluster,
            workload=setting.workload,
            stack=resolved.stack,
            measured=resolved.measured,
            assumptions=resolved.notes + setting.notes,
            expansion=expansion(setting.cluster),
            machine=Machine(setting.cluster, resolved.measured, rates=setting.rates),
        )
        options = SolveOptions(
            top=0, deadline_s=self._deadline_s(), risk=self._risk, progress=self._progress
        )
        return solve(problem, options)


def what_if(
    plan: Plan,
    question: Question,
    inputs: Inputs,
    risk: float,
    seconds: SearchBudget | None = None,
    progress: ProgressCallback | None = None,
    row_done: RowCallback | None = None,
) -> WhatIf:
    """Answer a question about a plan.

    Args:
        plan: a legal plan.
        question: what changes.
        inputs: stack, attention, overlap and calibration as flags of ``plan simulate``.
        risk: accepted chance of running out of memory.
        seconds: maps the number of searches left to the seconds of the next; None: no limit.
        progress: of each search.
        row_done: called with (rows answered, rows).

    Ctrl-C ends the running search with its best plan so far, and no further row is answered.

    Raises:
        InputError: a question that cannot be asked of this plan, raised before any search.
    """
    left = 0
    limit = seconds or (lambda searches: None)
    pricing = SettingPricing(inputs, risk, lambda: limit(left), progress)
    base = base_setting(plan, inputs)
    rows = rows_of(question, base)
    for row in rows:
        _check_row(row, pricing)
    start = pricing.simulated(plan, base)
    baseline = price_plan(plan, base, pricing)
    answers = []
    for number, row in enumerate(rows):
        left = len(rows) - number
        if row_done is not None:
            row_done(number, len(rows))
        answers.append(answer_row(row, baseline, pricing))
        if seconds is None and _interrupted(answers[-1]):
            break
    return WhatIf(
        question=question,
        baseline=baseline,
        answers=tuple(answers),
        assumptions=_distinct_notes([start.assumptions, *(row.setting.notes for row in rows)]),
        provenance=start.provenance,
    )


def check_question(plan: Plan, question: Question, inputs: Inputs, risk: float) -> None:
    """Refuse the questions that :func:`what_if` refuses, pricing nothing.

    Raises:
        InputError: a question that cannot be asked of this plan.
    """
    pricing = SettingPricing(inputs, risk, lambda: None)
    for row in rows_of(question, base_setting(plan, inputs)):
        _check_row(row, pricing)


def split_deadline(deadline_s: float) -> SearchBudget:
    """Deadline from now, split equally among the searches left."""
    ends_s = time.monotonic() + deadline_s
    return lambda searches: max(0.0, ends_s - time.monotonic()) / max(1, searches)


def _interrupted(answer: Answer) -> bool:
    return answer.search is not None and answer.search.stopped_by == "deadline"


def base_setting(plan: Plan, inputs: Inputs) -> Setting:
    """Setting of the unchanged plan."""
    stack, measured, _ = plan_pricing(plan, inputs)
    return Setting(
        model=plan.model,
        cluster=plan.cluster,
        workload=plan.workload,
        stack=_with_profile_figures(stack, measured),
        groups={name: name for name in group_names(plan.cluster)},
    )


def _with_profile_figures(stack: StackSpec, measured: Measured | None) -> StackSpec:
    profile = profile_of(measured)
    if profile is None:
        return stack
    slowdown = profile.overlap_slowdown
    return replace(
        stack,
        launch_s=profile.host_s.get("kernel", stack.launch_s),
        overlap_slowdown=stack.overlap_slowdown if slowdown is None else slowdown,
    )


def _check_row(row: Row, pricing: SettingPricing) -> None:
    """Refuse a setting in which no plan could run, before searching."""
    swept = row.value is not None
    paths = [change.path for change in row.changes]
    exchanged = [path for path in paths if path.rpartition(".")[2] == "device"]
    for path in ["dtype"] if "dtype" in paths else exchanged:
        _check_formats(row, path, f"{_flag_of_path(paths, path, swept)} {path}")
    try:
        pricing.resolved_stack(row.setting)
    except InputError as error:
        path = PATH_OF_FLAG.get(error.field, "")
        if path not in paths:
            raise
        where = f"{_flag_of_path(paths, path, swept)} {path}"
        raise InputError(where, error.given, error.allowed, error.nearest) from None


def _check_formats(row: Row, path: str, where: str) -> None:
    """Refuse a format that a device of the setting does not compute in."""
    dtype = row.setting.workload.dtype
    for group in row.setting.cluster.groups:
        try:
            require_dtype(device(group.device), dtype.param, where)
            if dtype.matmul is not None:
                require_format(device(group.device), dtype.matmul, where)
        except InputError as error:
            if path == "dtype":
                raise
            allowed = f"a device that computes in {error.given}, or another dtype beside it"
            near = f"--set dtype={error.nearest or device(group.device).dtypes[-1]}"
            raise InputError(where, group.device, allowed, near) from None


def _flag_of_path(paths: Sequence[str], path: str, swept: bool) -> str:
    return "--sweep" if swept and paths[-1] == path else "--set"


def _distinct_notes(notes: Sequence[tuple[Assumption, ...]]) -> tuple[Assumption, ...]:
    distinct: list[Assumption] = []
    for note in chain.from_iterable(notes):
        if note not in distinct:
            distinct.append(note)
    return tuple(distinct)
