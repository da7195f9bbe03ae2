"""Plans tied with the best, and the simplest of them.

A search keeps the plans it meets, so the simplest (``candidates.complexity``) are made here: in the
tied plans' shapes all layers take one strategy as far as legal, and plans that still fit and tie
join the set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...spec.plan.uniform_strategy import applicable_strategy
from ...spec.strategy import LayerStrategy
from ..candidates.evaluator import Decision, Outcome
from .branch_and_bound import BranchAndBound

SHAPES, STRATEGIES = 4, 3
"""Shapes of which simple plans are made, and strategies of each."""
MAX_SIMULATED_PASSES = 100_000
"""Passes of all steps that are simulated for it."""


def tie_set(search: BranchAndBound, outcomes: Sequence[Outcome], within: float) -> list[Outcome]:
    """Plans within a fraction of the best objective, best first.

    Args:
        search: their search.
        outcomes: feasible plans, best first.
        within: fraction of indistinguishable objectives.
    """
    limit = search.value(outcomes[0]) * (1 + within)
    tied = {o.decision: o for o in outcomes if search.value(o) <= limit}
    if search.request.stack.limits.one_strategy:  # all of its plans are that simple
        return sorted(tied.values(), key=search.value)
    passes = 0
    for decision in _simpler(search, list(tied.values())):
        passes += decision.shape.passes
        if passes > MAX_SIMULATED_PASSES:
            break
        cutoff_s = limit / search.objective.factor(decision.shape)
        outcome = search.evaluator(decision, cutoff_s)
        if outcome is not None and outcome.feasible and search.value(outcome) <= limit:
            tied.setdefault(decision, outcome)
    return sorted(tied.values(), key=search.value)


def _simpler(search: BranchAndBound, tied: list[Outcome]) -> Iterator[Decision]:
    """Each shape's best plan with one strategy throughout."""
    best = {o.decision.shape: o for o in reversed(tied)}
    shapes = list(dict.fromkeys(o.decision.shape for o in tied))[:SHAPES]
    seen: set[Decision] = {o.decision for o in tied}
    for shape in shapes:
        decision = best[shape].decision
        common = Counter(decision.strategies).most_common(STRATEGIES)
        for strategy, _ in common:
            simpler = decision._replace(strategies=_all_of(search, decision, strategy))
            if simpler not in seen:
                seen.add(simpler)
                yield simpler


def _all_of(
    search: BranchAndBound, decision: Decision, wanted: LayerStrategy
) -> tuple[LayerStrategy, ...]:
    """One strategy for all layers; if illegal, without recomputation or unchanged."""
    is_legal = search.incumbents.legality(decision)
    request = search.request
    layers, techniques = request.model.layers(), request.techniques.values
    keys = list(zip(search.space.layer_classes, decision.strategies, strict=True))
    chosen: dict[tuple[int, LayerStrategy], LayerStrategy] = {}
    for layer, key in enumerate(keys):
        if key not in chosen:
            applied = applicable_strategy(layers[layer], wanted, techniques)
            options = (applied, replace(applied, recompute="none"))
            legal = (strategy for strategy in options if is_legal(layer, strategy))
            chosen[key] = next(legal, key[1])
    return tuple(chosen[key] for key in keys)
