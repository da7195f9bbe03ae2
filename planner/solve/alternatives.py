"""Ranking of a search's plans: tie set, alternatives, decisive terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...costmodel.explain.breakdown import breakdown, predict
from ...costmodel.explain.step_cost import with_cost
from ...spec.plan.rental_prices import RentalPrices
from ...spec.report.report import Alternative, Prediction, TieSet
from ..candidates.evaluator import Outcome
from ..search.branch_and_bound import BranchAndBound
from ..search.enumeration import ROUNDING
from ..search.even_boundaries import level_boundaries
from ..search.result import SolveResult
from ..search.tie_set import complexity, tie_set

TIE_WITHIN = 0.05
"""Relative difference in time below which neither model nor machine tells plans apart.

Of 3,511 pairs of published layouts of 78 questions (datasets/published/runs.csv, priced without
calibration), half have a predicted ratio that is more than 9 % off the measured one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRanking:
    """Chosen plan, all feasible ones (best first), and ties with the best."""

    search: BranchAndBound
    chosen: Outcome
    outcomes: list[Outcome]
    tied: list[Outcome]

    @property
    def simplest(self) -> Outcome:
        """Simplest plan tied with the best."""
        return min(self.tied, key=complexity)

    @property
    def tie_set(self) -> TieSet:
        """Tie set of the report."""
        simplest = self.simplest
        return TieSet(
            within=TIE_WITHIN,
            size=len(self.tied),
            simplest=simplest.plan.hash,
            strategies=simplest.distinct_strategies,
        )


def ranking(search: BranchAndBound, result: SolveResult, simple: bool) -> PlanRanking:
    """Ranking of a finished search's plans."""
    outcomes = list(result.outcomes)
    try:
        level = level_boundaries(search, outcomes[0])
        outcomes = [level, *(o for o in outcomes if o is not level)]
        tied = tie_set(search, outcomes, TIE_WITHIN)
    except KeyboardInterrupt:  # an answer is there; only simpler plans that tie are not made
        search.interrupted = True
        limit = search.value(outcomes[0]) * (1 + TIE_WITHIN)
        tied = [o for o in outcomes if search.value(o) <= limit]
    distinct = {o.decision: o for o in (*outcomes, *tied)}
    outcomes = sorted(distinct.values(), key=lambda o: _rounded_value(search, o, outcomes[0]))
    chosen = min(tied, key=complexity) if simple else outcomes[0]
    return PlanRanking(search=search, chosen=chosen, outcomes=outcomes, tied=tied)


def _rounded_value(search: BranchAndBound, outcome: Outcome, best: Outcome) -> float:
    """Value, or the best plan's where only rounding differs: sorting leaves equals as found."""
    value, least = search.value(outcome), search.value(best)
    return least if abs(value - least) <= ROUNDING * least else value


def prediction_with_cost(
    outcome: Outcome, search: BranchAndBound, prices: RentalPrices | None
) -> Prediction:
    """Prediction of a simulated plan, with its cost if priced."""
    evaluator = search.evaluator
    prediction = predict(outcome.plan, outcome.simulation, evaluator.simulator, evaluator.rule)
    return with_cost(prediction, outcome.plan, prices)


def alternatives(
    ranking: PlanRanking, top: int, prices: RentalPrices | None
) -> tuple[Alternative, ...]:
    """Best plans of other shapes, and the simplest tied with the best.

    The best plan is among them if the simplest is chosen.
    """
    best, simplest = ranking.chosen, ranking.simplest
    return tuple(
        Alternative(
            plan=o.plan,
            prediction=prediction_with_cost(o, ranking.search, prices),
            lost_by=lost_by(best, o, ranking.search),
            simplest=o is simplest,
        )
        for o in alternative_outcomes(ranking.outcomes, best, simplest, top)
    )


def alternative_outcomes(
    outcomes: Sequence[Outcome], best: Outcome, simplest: Outcome, top: int
) -> list[Outcome]:
    """Plans to report beside the chosen one."""
    shapes = {best.decision.shape}
    chosen = [outcomes[0]] if outcomes[0] is not best else []
    for outcome in outcomes:
        if len(chosen) < top and outcome.decision.shape not in shapes:
            shapes.add(outcome.decision.shape)
            if outcome not in chosen:
                chosen.append(outcome)
    if simplest is not best and simplest not in chosen:
        chosen.append(simplest)
    return chosen


def lost_by(best: Outcome, other: Outcome, search: BranchAndBound) -> str:
    """Objective excess in per cent, and the step term grown most."""
    share = search.value(other) / search.value(best) - 1
    if share < 0:
        counts = f"{other.distinct_strategies} strategies, not {best.distinct_strategies}"
        return f"{share:+.1%}, but less simple: {counts}"
    main, terms = (
        {
            n: s * search.objective.factor(o.decision.shape)
            for n, s in breakdown(o.simulation).items()
        }
        for o in (best, other)
    )
    return lost_text(share, main, terms)


def lost_text(share: float, main: Mapping[str, float], terms: Mapping[str, float]) -> str:
    """Objective excess in per cent, and the term grown most.

    Args:
        share: relative excess over the best plan's objective.
        main: seconds of the best plan by term.
        terms: of the other one.
    """
    grown = max(terms, key=lambda name: (terms[name] - main.get(name, 0.0), name))
    return f"{share:+.1%}: {grown.replace('_', ' ')}"
