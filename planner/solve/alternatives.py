"""Ranking of a search's plans: tie set, alternatives, decisive terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...costmodel.explain.breakdown import breakdown, predict
from ...costmodel.explain.step_cost import with_cost
from ...spec.plan.rental_prices import RentalPrices
from ...spec.report.report import Alternative, Prediction, TieSet
from ..candidates.complexity import Complexity, complexity
from ..candidates.evaluator import Outcome
from ..candidates.family import family_of
from ..search.branch_and_bound import BranchAndBound
from ..search.enumeration import ROUNDING
from ..search.even_boundaries import level_boundaries
from ..search.feasibility_probe import SearchParts
from ..search.result import SolveResult
from ..search.tie_set import tie_set
from ..uniform.textbook import TextbookPlans

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
        return simplest(self.search, self.tied)

    @property
    def tie_set(self) -> TieSet:
        """Tie set of the report."""
        simplest = self.simplest
        return TieSet(
            within=TIE_WITHIN,
            size=len(self.tied),
            simplest=simplest.plan.hash,
            strategies=complexity(simplest).strategies,
        )


def ranking(parts: SearchParts, result: SolveResult, simple_within: float | None) -> PlanRanking:
    """Ranking of a finished search's plans, textbook plans among them."""
    search, outcomes = parts.engine, list(result.outcomes)
    try:
        level = level_boundaries(search, outcomes[0])
        outcomes = [level, *(o for o in outcomes if o is not level)]
        if result.stopped_by != "deadline" and not parts.incumbents.is_late:
            textbook = TextbookPlans(parts.bounds, search.evaluator)
            outcomes += textbook.outcomes(result.shapes, outcomes[0])
        outcomes = _ordered(search, outcomes)
        tied = tie_set(search, outcomes, TIE_WITHIN)
    except KeyboardInterrupt:  # an answer is there; only simpler plans that tie are not made
        search.interrupted = True
        limit = search.value(outcomes[0]) * (1 + TIE_WITHIN)
        tied = [o for o in outcomes if search.value(o) <= limit]
    outcomes = _ordered(search, [*outcomes, *tied])
    chosen = outcomes[0]
    if simple_within is not None:
        limit = search.value(chosen) * (1 + simple_within)
        chosen = simplest(search, [o for o in outcomes if search.value(o) <= limit])
    return PlanRanking(search=search, chosen=chosen, outcomes=outcomes, tied=tied)


def simplest(search: BranchAndBound, outcomes: Sequence[Outcome]) -> Outcome:
    """Simplest of some plans, the best of equally simple ones."""
    return min(outcomes, key=lambda o: (complexity(o), search.value(o)))


def _ordered(search: BranchAndBound, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Plans by value, each once; those found first stay first among equals."""
    distinct = list({o.decision: o for o in outcomes}.values())
    return sorted(distinct, key=lambda o: _rounded_value(search, o, outcomes[0]))


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
    """The fastest plan if another is chosen, runners-up, and the simplest tied plan."""
    best, simplest = ranking.chosen, ranking.simplest
    return tuple(
        Alternative(
            plan=o.plan,
            prediction=prediction_with_cost(o, ranking.search, prices),
            lost_by=lost_by(best, o, ranking.search, o is ranking.outcomes[0]),
            simplest=o is simplest,
            fastest=o is ranking.outcomes[0],
        )
        for o in alternative_outcomes(ranking.outcomes, best, simplest, top)
    )


def alternative_outcomes(
    outcomes: Sequence[Outcome], best: Outcome, simplest: Outcome, top: int
) -> list[Outcome]:
    """Plans to report beside the chosen one: the best of other families, in order."""
    families = {family_of(best)}
    fastest = [outcomes[0]] if outcomes[0] is not best else []
    families.update(family_of(o) for o in fastest)
    chosen: list[Outcome] = []
    for outcome in outcomes:
        if len(chosen) >= top:
            break
        if (family := family_of(outcome)) not in families:
            families.add(family)
            chosen.append(outcome)
    if simplest is not best and simplest not in (*fastest, *chosen):
        chosen.append(simplest)
    return [*fastest, *chosen]


def lost_by(best: Outcome, other: Outcome, search: BranchAndBound, is_fastest: bool = False) -> str:
    """Objective excess in per cent, and the step term grown most; what a faster plan takes more."""
    share = search.value(other) / search.value(best) - 1
    if share < 0:
        text = faster_text(share, complexity(best), complexity(other))
        return text if is_fastest else f"{share:+.1%}: less simple"
    main, terms = (
        {
            n: s * search.objective.factor(o.decision.shape)
            for n, s in breakdown(o.simulation).items()
        }
        for o in (best, other)
    )
    return lost_text(share, main, terms)


def faster_text(share: float, simple: Complexity, other: Complexity) -> str:
    """What a faster plan takes more than a simpler one.

    Args:
        share: relative difference of the objective, below 0.
        simple: of the chosen plan.
        other: of the faster plan.
    """
    counts = (
        (other.strategies - simple.strategies, "strategy", "strategies"),
        (other.kinds - simple.kinds, "kind of parallelism", "kinds of parallelism"),
        (other.chunks - simple.chunks, "chunk a stage", "chunks a stage"),
    )
    more = [f"{n} {one if n == 1 else several} more" for n, one, several in counts if n > 0]
    marks = (
        (other.uneven > simple.uneven, "stages less even"),
        (other.schedule > simple.schedule, "a rarer schedule"),
        (other.fills_memory > simple.fills_memory, "full memory"),
        (other.whole_sequences > simple.whole_sequences, "whole sequences beside tp"),
    )
    more += [text for is_set, text in marks if is_set]
    return f"{share:+.1%} with {', '.join(more)}" if more else f"{share:+.1%}"


def lost_text(share: float, main: Mapping[str, float], terms: Mapping[str, float]) -> str:
    """Objective excess in per cent, and the term grown most.

    Args:
        share: relative excess over the best plan's objective.
        main: seconds of the best plan by term.
        terms: of the other one.
    """
    grown = max(terms, key=lambda name: (terms[name] - main.get(name, 0.0), name))
    return f"{share:+.1%}: {grown.replace('_', ' ')}"
