"""Refinement of families' numbers on the plans that a search found.

A search holds the ends of a family whose work lies on the line between them
(``spec.number_family``): bounds then hold for every number, but the best number of a stage may lie
inside, where copies just hide or bytes just fit. From the best plans the number is searched for
each stage and layer class, by simulation: more of it takes longer once it fits, so golden sections
narrow it down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...spec.number_family import DIGITS, NumberFamily
from ...spec.strategy import LayerStrategy
from ...spec.technique import TechniqueValue
from ...spec.technique_values import with_value
from ..candidates.evaluator import Decision, Outcome
from .heuristic import TryDecision

STARTS, SWEEPS = 2, 2
"""Plans that are refined, and times that their stages are gone through."""
MAX_TRIES, MAX_SIMULATED_PASSES = 240, 2_000_000
"""Simulations of a refinement, and passes of all their steps."""
GOLDEN = (math.sqrt(5) - 1) / 2
TOLERANCE = 10**-DIGITS
LEAST_GAIN = 1e-9

Families = tuple[tuple[TechniqueValue, NumberFamily], ...]
FamiliesOf = Callable[[int], Families]
"""Families whose numbers are free in a layer."""
IsLegal = Callable[[int, LayerStrategy, Decision], bool]
"""True if a layer of a decision may have a strategy, as far as its techniques go."""


class NumberGroup(NamedTuple):
    """Layers of a stage that take one number of a technique's family."""

    technique: TechniqueValue
    family: NumberFamily
    layers: tuple[int, ...]

    def decision(self, decision: Decision, number: float) -> Decision:
        """A decision with a number in these layers."""
        strategies = list(decision.strategies)
        value = self.family.make(number)
        for layer in self.layers:
            strategies[layer] = with_value(strategies[layer], self.technique.name, value)
        return decision._replace(strategies=tuple(strategies))

    def mean(self, decision: Decision) -> float:
        """The mean number of these layers; the least where the technique is off."""
        values = (self.technique.of(decision.strategies[layer]) for layer in self.layers)
        found = [None if value is None else self.family.number_of(value) for value in values]
        return sum(self.family.low if n is None else n for n in found) / len(found)


class NumberRefinement:
    """Improvement by the numbers between the ends of families.

    Args:
        families: those that are free in a layer.
        layer_classes: class of every layer.
        is_legal: of a layer's techniques.
        ranked: plans found so far, best first.
        attempt: simulates a decision, and keeps good plans.
    """

    def __init__(
        self,
        families: FamiliesOf,
        layer_classes: Sequence[int],
        is_legal: IsLegal,
        ranked: Callable[[], Sequence[Outcome]],
        attempt: TryDecision,
    ) -> None:
        self._families = families
        self._layer_classes = layer_classes
        self._is_legal = is_legal
        self._ranked = ranked
        self._attempt = attempt
        self._tries = self._passes = 0

    def run(self) -> None:
        """Refine the best plans that hold values of such a family."""
        if not any(map(self._families, range(len(self._layer_classes)))):
            return
        held = (o for o in self._ranked() if any(self._groups(o.decision)))
        for outcome in list(held)[:STARTS]:
            self.refine(outcome)

    def refine(self, outcome: Outcome) -> Outcome:
        """The best plan by other numbers, or the same plan."""
        best = outcome
        for _ in range(SWEEPS):
            before_s = best.step_time_s
            for group in list(self._groups(best.decision)):
                best = self._refined(best, group)
            if best.step_time_s >= before_s * (1 - LEAST_GAIN):
                break
        return best

    def _groups(self, decision: Decision) -> Iterator[NumberGroup]:
        """Layers of each stage and class that hold a family's value, or are equal but for it."""
        stages = _layer_stages(decision)
        alike: dict[tuple[object, ...], list[int]] = {}
        families: dict[tuple[object, ...], tuple[TechniqueValue, NumberFamily]] = {}
        for layer, strategy in enumerate(decision.strategies):
            for technique, family in self._families(layer):
                rest = with_value(strategy, technique.name, None)
                key = (stages[layer], self._layer_classes[layer], technique.name, family.word, rest)
                alike.setdefault(key, []).append(layer)
                families[key] = technique, family
        for place, layers in alike.items():
            technique, family = families[place]
            values = [technique.of(decision.strategies[layer]) for layer in layers]
            holds = [v is not None and family.number_of(v) is not None for v in values]
            own = tuple(layer for layer, held in zip(layers, holds, strict=True) if held)
            others = [v for v, held in zip(values, holds, strict=True) if not held]
            if own:
                yield NumberGroup(technique, family, own)
            if own and others and all(value is None for value in others):
                yield NumberGroup(technique, family, tuple(layers))

    def _refined(self, best: Outcome, group: NumberGroup) -> Outcome:
        """The best plan by the number of a group, found by golden sections."""
        known: dict[float, tuple[float, float]] = {}
        start = best.decision
        found = best

        def rank(number: float) -> tuple[float, float]:
            """Bytes over the limit, then seconds."""
            nonlocal found
            number = round(number, DIGITS)
            if number not in known:
                outcome = self._try(group.decision(start, number), group)
                known[number] = (math.inf, math.inf)
                if outcome is not None:
                    known[number] = (max(0.0, outcome.excess_bytes), outcome.step_time_s)
                    if outcome.feasible and outcome.step_time_s < found.step_time_s:
                        found = outcome
            return known[number]

        rank(group.mean(start))
        low, high = group.family.low, group.family.high
        inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
        while high - low > TOLERANCE:
            if rank(inner[0]) <= rank(inner[1]):
                high, inner = inner[1], [inner[1] - GOLDEN * (inner[1] - low), inner[0]]
            else:
                low, inner = inner[0], [inner[1], inner[0] + GOLDEN * (high - inner[0])]
        return found

    def _try(self, decision: Decision, group: NumberGroup) -> Outcome | None:
        """Simulate a decision within the limits of work; None if it may not be."""
        layer = group.layers[0]
        passes = decision.shape.passes
        over = self._tries >= MAX_TRIES or self._passes + passes > MAX_SIMULATED_PASSES
        if over or not self._is_legal(layer, decision.strategies[layer], decision):
            return None
        self._tries, self._passes = self._tries + 1, self._passes + passes
        return self._attempt(decision, math.inf)


def _layer_stages(decision: Decision) -> list[int]:
    shape, boundaries = decision.shape, decision.boundaries
    stages = [0] * boundaries[-1]
    for stage in range(shape.stages):
        for chunk in range(shape.chunks):
            position = shape.position(stage, chunk)
            for layer in range(boundaries[position], boundaries[position + 1]):
                stages[layer] = stage
    return stages
