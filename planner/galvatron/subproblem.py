"""One corner of the space: a field with one strategy of the ends, bounded and searched exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...costmodel.galvatron.plan_cost import GalvatronPlan
from ...costmodel.galvatron.strategy import GalvatronStrategy
from ..tables.arrays import Ints
from .degree_sets import DegreeSets
from .join_stages import ParetoFront, join_stages, pareto_front_of
from .options import HeadStrategy
from .stage_dp import ROUNDING, StageForm, StageLabels, stage_labels
from .step_lower_forms import LinearForm, forms_of
from .strategy_sets import Orders, StrategySet


class SubproblemSolution(NamedTuple):
    """The best plan of a corner below a time, and what no other plan of it is below."""

    step_s: float
    plan: GalvatronPlan
    bound_s: float


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where the labels of a front come from: degrees, numbers of strategies, counts."""

    sets: DegreeSets
    numbers: list[list[int]]
    counts: np.ndarray


class Subproblem:
    """A field with a strategy of the ends.

    Args:
        field: strategies that may stand together.
        ends: that of embedding and head.
        usable_mb: MB of a device.
    """

    def __init__(self, field: StrategySet, ends: HeadStrategy, usable_mb: int) -> None:
        self.field = field
        self.ends = ends
        self._rooms = field.rooms(ends, usable_mb)
        self._forms = forms_of(field.options.stages, field.options.microbatches)
        self._values = [
            [self._value(stage, form) for form in self._forms] for stage in range(len(self._rooms))
        ]
        self.bound_s = max(sum(column) for column in zip(*self._values, strict=True))

    def solve(self, best_s: float, most: int | None = None) -> SubproblemSolution | None:
        """The best plan below ``best_s``, or None.

        Args:
            best_s: only faster plans are of interest.
            most: labels kept at a time; None: all, so that the answer is exact.
        """
        fronts: list[ParetoFront] = []
        choices: list[list[_Choice]] = []
        for stage in range(len(self._rooms)):
            front, chosen = self._front(stage, best_s, most)
            if front is None:
                return None
            fronts.append(front)
            choices.append(chosen)
        found = join_stages(fronts, self.field.options.microbatches)
        parts = [
            self._layers(choices[stage], fronts[stage], row) for stage, row in enumerate(found.rows)
        ]
        options = self.field.options
        plan = GalvatronPlan(
            layers=tuple(strategy for part in parts for strategy in part),
            ends=self.ends.strategy,
            microbatches=options.microbatches,
            division=options.division,
        )
        return SubproblemSolution(found.step_s, plan, found.bound_s)

    def _value(self, stage: int, form: LinearForm) -> float:
        """What a stage adds to a form at least."""
        plain, reduce = form.plain[stage], form.reduce[stage]
        relaxed = self.field.knapsack(stage, None, plain, reduce).at(self._rooms[stage])
        return relaxed.least + (plain - reduce) * self.ends.seconds[stage]

    def _front(
        self, stage: int, best_s: float, most: int | None
    ) -> tuple[ParetoFront | None, list[_Choice]]:
        """The plans of a stage that may be part of a better step."""
        own = self.ends.seconds[stage]
        others = [
            sum(row[n] for s, row in enumerate(self._values) if s != stage)
            + (form.plain[stage] - form.reduce[stage]) * own
            for n, form in enumerate(self._forms)
        ]
        merged: dict[tuple[int, int], float] = {}
        for form, constant in zip(self._forms, others, strict=True):
            key = (form.plain[stage], form.reduce[stage])
            merged[key] = max(merged.get(key, -np.inf), constant)
        labels: list[StageLabels] = []
        choices: list[_Choice] = []
        for sets in self.field.sets(stage):
            if self._passes(stage, None, sets.seconds, merged, best_s):
                break  # the others change degrees at a higher cost
            if self._passes(stage, sets, sets.seconds, merged, best_s):
                continue
            found = self._labels(stage, sets, merged, best_s, most)
            if len(found):
                numbers = [n for _, n in self.field.runs(stage, _whole(sets))]
                choices.append(_Choice(sets, numbers, found.counts))
                labels.append(found)
        if not labels:
            return None, []
        return pareto_front_of(
            [
                found.plain_s + c.sets.seconds + own
                for found, c in zip(labels, choices, strict=True)
            ],
            [found.reduce_s - own for found in labels],
        ), choices

    def _passes(
        self,
        stage: int,
        sets: DegreeSets | None,
        reshard_s: float,
        merged: dict[tuple[int, int], float],
        best_s: float,
    ) -> bool:
        """Whether a bound of the stage says that no plan with these degrees is better."""
        orders = None if sets is None else _whole(sets)
        return any(
            constant
            + self.field.knapsack(stage, orders, plain, reduce).at(self._rooms[stage]).least
            + plain * reshard_s
            >= best_s * (1 - ROUNDING)
            for (plain, reduce), constant in merged.items()
        )

    def _labels(
        self,
        stage: int,
        sets: DegreeSets,
        merged: dict[tuple[int, int], float],
        best_s: float,
        most: int | None,
    ) -> StageLabels:
        orders, room = _whole(sets), self._rooms[stage]
        forms = [
            StageForm(
                plain,
                reduce,
                constant + plain * sets.seconds,
                self.field.knapsack(stage, orders, plain, reduce).at(room).per_mb,
            )
            for (plain, reduce), constant in merged.items()
        ]
        runs = [run for run, _ in self.field.runs(stage, orders)]
        labels = stage_labels(runs, room, forms, best_s, most)
        return labels.taken(self._uses_all(stage, orders, labels.counts))

    def _uses_all(self, stage: int, orders: Orders, counts: Ints) -> np.ndarray:
        """Which labels use every degree of their sets, which is what changes were counted for."""
        used, start = np.ones(len(counts), dtype=bool), 0
        strategies = self.field.options.strategies
        for degrees, (_, numbers) in zip(orders, self.field.runs(stage, orders), strict=True):
            own = np.array([strategies[k].degree for k in numbers])
            for degree in degrees:
                columns = start + np.flatnonzero(own == degree)
                used &= counts[:, columns].sum(axis=1) > 0
            start += len(numbers)
        return used

    def _layers(
        self, choices: Sequence[_Choice], front: ParetoFront, row: int
    ) -> list[GalvatronStrategy]:
        """The strategies of a stage's layers, those of a degree together, recomputed ones first."""
        choice = choices[int(front.parts[row])]
        counts = choice.counts[int(front.places[row])].tolist()
        strategies, found = self.field.options.strategies, []
        for order, numbers in zip(choice.sets.orders, choice.numbers, strict=True):
            own = list(zip((strategies[k] for k in numbers), counts, strict=False))
            counts = counts[len(numbers) :]
            for degree in order:
                alike = sorted((s for s, _ in own if s.degree == degree), key=_recomputed_first)
                of = dict(own)
                found += [s for s in alike for _ in range(of[s])]
        return found


def _recomputed_first(strategy: GalvatronStrategy) -> tuple[bool, GalvatronStrategy]:
    return (not strategy.recompute, strategy)


def _whole(sets: DegreeSets) -> Orders:
    """The degrees of each run, whatever their order: the key of what depends on them alone."""
    return tuple(tuple(sorted(order)) for order in sets.orders)
