"""``plan --galvatron-profile``: the search under Galvatron's costs, as a report of ours."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numpy as np

from ... import __version__
from ...costmodel.galvatron.job import MB, GalvatronJob, usable_mb
from ...costmodel.galvatron.plan_cost import GalvatronCost, GalvatronPlan
from ...costmodel.galvatron.predict import predict
from ...planner.galvatron.best_uniform import best_uniform
from ...planner.galvatron.coverage import left_out, space
from ...planner.galvatron.least_budget import least_budget_mb
from ...planner.galvatron.options import Legal
from ...planner.galvatron.search import GalvatronResult, search
from ...planner.galvatron.translate import legality, plan_of
from ...spec.errors import InfeasibleError, InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import (
    Alternative,
    Assumption,
    ObjectiveResult,
    Prediction,
    Provenance,
    Report,
    SearchResult,
    TieSet,
)
from ...spec.units import format_bytes
from ..problem.resolve import Problem
from .alternatives import TIE_WITHIN, lost_text
from .galvatron_job import galvatron_job

STACK = "Hetu-Galvatron's cost model (PipeDream flush, ZeRO-2 or ZeRO-3, Megatron or Ulysses)"


def galvatron_plan(
    problem: Problem, folder: str | Path, top: int = 3, deadline_s: float | None = None
) -> Report:
    """The fastest plan under Galvatron's costs.

    Args:
        problem: what is asked.
        folder: what Galvatron's profilers wrote.
        top: how many alternatives to show.
        deadline_s: stop after so many seconds with the best plan so far.

    Raises:
        InputError: what its costs do not speak of, or an unusable profile.
        InfeasibleError: nothing fits.
    """
    job = galvatron_job(problem, folder)
    budget_mb = problem.cluster.groups[0].memory.hbm_bytes // MB
    ends_s = time.monotonic() + (float("inf") if deadline_s is None else deadline_s)
    legal = legality(problem.model, problem.workload, job)
    found = search(job, budget_mb, legal, lambda: time.monotonic() > ends_s)
    if found is None:
        raise _nothing_fits(job, budget_mb, legal)
    answers = _PlanTranslator(problem, job, budget_mb)
    best = answers.plan_and_prediction(found.plan, found.price)
    others = [answers.plan_and_prediction(*rival) for rival in found.rivals][:top]
    uniform = best_uniform(job, budget_mb, found.plan, legal)
    simplest = answers.plan_and_prediction(*uniform) if uniform is not None else None
    return Report(
        plan=best[0],
        prediction=best[1],
        assumptions=(*_priced_notes(problem), *_notes(job, budget_mb, found)),
        source_share={"measured": 1.0, "learned": 0.0, "analytic": 0.0},
        provenance=_provenance(job),
        search=_search_result(job, found, legal, _ties(best, others, simplest)),
        alternatives=_alternatives(best, others, simplest),
    )


PlanAndPrediction = tuple[Plan, Prediction]


class _PlanTranslator:
    """Plans and predictions of decisions on one problem."""

    def __init__(self, problem: Problem, job: GalvatronJob, budget_mb: int) -> None:
        self._problem, self._job, self._budget_mb = problem, job, budget_mb

    def plan_and_prediction(self, found: GalvatronPlan, price: GalvatronCost) -> PlanAndPrediction:
        """The plan as ours, legal, and what is predicted of it."""
        asked = self._problem
        plan = plan_of(asked.model, asked.cluster, asked.workload, found)
        if broken := plan.check():
            raise RuntimeError(f"the search under Galvatron's costs made no plan: {broken[0]}")
        return plan, predict(self._job, found, price, plan, self._budget_mb)


def _alternatives(
    best: PlanAndPrediction, others: list[PlanAndPrediction], simplest: PlanAndPrediction | None
) -> tuple[Alternative, ...]:
    """Rivals of other shapes, and the plan of one strategy, which may tie with the best."""
    found = [
        Alternative(plan=plan, prediction=predicted, lost_by=_lost_by(best[1], predicted))
        for plan, predicted in others
    ]
    if simplest is not None and simplest[0].hash != best[0].hash:
        plan, predicted = simplest
        tied = predicted.step_time_s <= best[1].step_time_s * (1 + TIE_WITHIN)
        lost_by = _lost_by(best[1], predicted)
        found.append(Alternative(plan=plan, prediction=predicted, lost_by=lost_by, simplest=tied))
    return tuple(found)


def _lost_by(best: Prediction, other: Prediction) -> str:
    """How much slower, and which term grew most."""
    share = other.step_time_s / best.step_time_s - 1
    return lost_text(share, best.breakdown_s, other.breakdown_s)


def _ties(
    best: PlanAndPrediction, others: list[PlanAndPrediction], simplest: PlanAndPrediction | None
) -> TieSet:
    """The plans that are told of and as fast as the best within the error of a model."""
    limit_s = best[1].step_time_s * (1 + TIE_WITHIN)
    rivals = [*others, *([simplest] if simplest is not None else [])]
    tied = {
        plan.hash: plan for plan, predicted in (best, *rivals) if predicted.step_time_s <= limit_s
    }
    fewest = min(tied.values(), key=lambda plan: (len({*plan.layer_strategies()}), plan.hash))
    return TieSet(
        within=TIE_WITHIN,
        size=len(tied),
        simplest=fewest.hash,
        strategies=len({*fewest.layer_strategies()}),
    )


def _search_result(
    job: GalvatronJob, found: GalvatronResult, legal: Legal, ties: TieSet
) -> SearchResult:
    return SearchResult(
        seconds=round(found.seconds, 3),
        candidates=found.corners,
        lower_bound_s=found.lower_bound_s,
        gap=found.price.step_s / found.lower_bound_s - 1,
        stopped_by=found.stopped_by,
        space=space(job, legal),
        left_out=left_out(job),
        objective=ObjectiveResult(
            name="throughput",
            unit="seconds a step",
            value=found.price.step_s,
            bound=found.lower_bound_s,
        ),
        tie_set=ties,
    )


def _priced_notes(problem: Problem) -> list[Assumption]:
    """What was assumed of the problem; no stack of ours is priced."""
    return [note for note in problem.assumptions if note.path.partition(".")[0] != "stack"]


def _notes(job: GalvatronJob, budget_mb: int, found: GalvatronResult) -> tuple[Assumption, ...]:
    """What Galvatron's costs mean, said once."""
    withheld = budget_mb - usable_mb(budget_mb)
    reserve = "a fifth of a budget above 20 GB is kept from the plan, for the allocator's cache"
    notes = [
        ("costs", "galvatron", "--galvatron-profile: its times, memory and pipeline formula, "
         "layers rounded up to whole MB; --costs ours prices by ours"),
        ("costs.withheld_bytes", withheld * MB, reserve),
        ("costs.schedule", "1f1b", "its default; gradients reduced beside the last backward"),
        ("costs.change_of_degree_s", found.price.reshard_s,
         "neighbours of a stage with other degrees pay its charge, about 100x the bandwidth's"),
        ("costs.layer_types", list(job.layers), "blocks of each type of its profile, in order"),
    ]  # fmt: skip
    return tuple(Assumption(path=path, value=value, why=why) for path, value, why in notes)


def _provenance(job: GalvatronJob) -> Provenance:
    versions = {
        "shardwright": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return Provenance(
        stack=STACK, calibration="none", tables=list(job.profile.files), versions=versions
    )


def _nothing_fits(job: GalvatronJob, budget_mb: int, legal: Legal) -> InfeasibleError:
    """The error of a budget that is too small, with the least that fits."""
    least = least_budget_mb(job, legal)
    if least is None:
        raise InputError(
            "--global-batch", job.global_batch, "one that some power of two of replicas divides"
        )
    gib = -(-least * 10 // 1024) / 10
    return InfeasibleError(
        f"hbm: under Galvatron's costs the smallest plan needs {format_bytes(least * MB)} of "
        f"{format_bytes(budget_mb * MB)}; smallest change that fits: --memory-gib {gib:.1f}"
    )
