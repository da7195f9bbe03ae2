"""Solve a problem under Galvatron's costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...costmodel.galvatron.job import MB, GalvatronJob, usable_mb
from ...costmodel.galvatron.plan_cost import GalvatronCost, GalvatronPlan
from ...costmodel.galvatron.predict import predict
from ...spec.errors import InfeasibleError, InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import (
    Alternative,
    Assumption,
    ObjectiveResult,
    Prediction,
    SearchResult,
    TieSet,
)
from ...spec.units import format_bytes
from ..galvatron.best_uniform import best_uniform
from ..galvatron.coverage import left_out, space
from ..galvatron.least_budget import least_budget_mb
from ..galvatron.options import Legal
from ..galvatron.search import GalvatronResult, search
from ..galvatron.translate import legality, plan_of
from .alternatives import TIE_WITHIN, lost_text
from .options import SolveOptions
from .problem import Problem
from .solution import Solution

PRICING = "Hetu-Galvatron's cost model (PipeDream flush, ZeRO-2 or ZeRO-3, Megatron or Ulysses)"


@dataclass(frozen=True, slots=True)
class _PricedPlan:
    """Plan of ours, with its prediction under Galvatron's costs."""

    plan: Plan
    prediction: Prediction

    @property
    def step_time_s(self) -> float:
        return self.prediction.step_time_s


def solve_galvatron(problem: Problem, job: GalvatronJob, options: SolveOptions) -> Solution:
    """Find the fastest plan under Galvatron's costs.

    Args:
        problem: the problem.
        job: the problem as Galvatron's costs take it.
        options: only ``top`` and ``deadline_s`` count.

    Raises:
        InputError: a batch that no number of replicas divides.
        InfeasibleError: nothing fits.
    """
    budget_mb = problem.cluster.groups[0].memory.hbm_bytes // MB
    deadline_s = float("inf") if options.deadline_s is None else options.deadline_s
    end_s = time.monotonic() + deadline_s
    legal = legality(problem.model, problem.workload, job)
    result = search(job, budget_mb, legal, lambda: time.monotonic() > end_s)
    if result is None:
        raise _infeasible(job, budget_mb, legal)
    translate = _Translator(problem, job, budget_mb)
    best = translate(result.plan, result.price)
    others = [translate(*rival) for rival in result.rivals][: options.top]
    uniform = best_uniform(job, budget_mb, result.plan, legal)
    simplest = translate(*uniform) if uniform is not None else None
    return Solution(
        plan=best.plan,
        prediction=best.prediction,
        source_share={"measured": 1.0, "learned": 0.0, "analytic": 0.0},
        pricing=PRICING,
        tables=tuple(job.profile.files),
        search=_search_result(job, result, legal, _tie_set(best, others, simplest)),
        alternatives=_alternatives(best, others, simplest),
        notes=_notes(job, budget_mb, result),
    )


@dataclass(frozen=True, slots=True)
class _Translator:
    """Translation of Galvatron's plans of one problem into ours."""

    problem: Problem
    job: GalvatronJob
    budget_mb: int

    def __call__(self, decisions: GalvatronPlan, price: GalvatronCost) -> _PricedPlan:
        problem = self.problem
        plan = plan_of(problem.model, problem.cluster, problem.workload, decisions)
        if violations := plan.check():
            raise RuntimeError(f"the search under Galvatron's costs made no plan: {violations[0]}")
        return _PricedPlan(plan, predict(self.job, decisions, price, plan, self.budget_mb))


def _alternatives(
    best: _PricedPlan, others: list[_PricedPlan], simplest: _PricedPlan | None
) -> tuple[Alternative, ...]:
    """Plans of other shapes, and the possibly tied plan of one strategy."""
    alternatives = [
        Alternative(plan=o.plan, prediction=o.prediction, lost_by=_lost_by(best, o)) for o in others
    ]
    if simplest is not None and simplest.plan.hash != best.plan.hash:
        alternatives.append(
            Alternative(
                plan=simplest.plan,
                prediction=simplest.prediction,
                lost_by=_lost_by(best, simplest),
                simplest=simplest.step_time_s <= best.step_time_s * (1 + TIE_WITHIN),
            )
        )
    return tuple(alternatives)


def _lost_by(best: _PricedPlan, other: _PricedPlan) -> str:
    share = other.step_time_s / best.step_time_s - 1
    return lost_text(share, best.prediction.breakdown_s, other.prediction.breakdown_s)


def _tie_set(best: _PricedPlan, others: list[_PricedPlan], simplest: _PricedPlan | None) -> TieSet:
    limit_s = best.step_time_s * (1 + TIE_WITHIN)
    plans = [best, *others, *([simplest] if simplest is not None else [])]
    tied = {p.plan.hash: p.plan for p in plans if p.step_time_s <= limit_s}
    fewest = min(tied.values(), key=lambda plan: (len({*plan.layer_strategies()}), plan.hash))
    return TieSet(
        within=TIE_WITHIN,
        size=len(tied),
        simplest=fewest.hash,
        strategies=len({*fewest.layer_strategies()}),
    )


def _search_result(
    job: GalvatronJob, result: GalvatronResult, legal: Legal, ties: TieSet
) -> SearchResult:
    """Bound, space, ranking and effort of a search."""
    value, bound = result.price.step_s, result.lower_bound_s
    return SearchResult(
        seconds=round(result.seconds, 3),
        candidates=result.corners,
        lower_bound_s=bound,
        gap=value / bound - 1,
        stopped_by=result.stopped_by,
        space=space(job, legal),
        left_out=left_out(job),
        objective=ObjectiveResult(
            name="throughput", unit="seconds a step", value=value, bound=bound
        ),
        tie_set=ties,
    )


def _notes(job: GalvatronJob, budget_mb: int, result: GalvatronResult) -> tuple[Assumption, ...]:
    """Notes on the meaning of Galvatron's costs."""
    withheld = budget_mb - usable_mb(budget_mb)
    reserve = "a fifth of a budget above 20 GB is kept from the plan, for the allocator's cache"
    notes = [
        ("costs", "galvatron", "--galvatron-profile: its times, memory and pipeline formula, "
         "layers rounded up to whole MB; --costs ours prices by ours"),
        ("costs.withheld_bytes", withheld * MB, reserve),
        ("costs.schedule", "1f1b", "its default; gradients reduced beside the last backward"),
        ("costs.change_of_degree_s", result.price.reshard_s,
         "neighbours of a stage with other degrees pay its charge, about 100x the bandwidth's"),
        ("costs.layer_types", list(job.layers), "blocks of each type of its profile, in order"),
    ]  # fmt: skip
    return tuple(Assumption(path=path, value=value, why=why) for path, value, why in notes)


def _infeasible(job: GalvatronJob, budget_mb: int, legal: Legal) -> InfeasibleError:
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
