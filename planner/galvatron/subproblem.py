"""Strategy set with one strategy of the ends, bounded and searched exactly."""

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
    """Best plan of a subproblem below a time, and a bound."""

    step_s: float
    plan: GalvatronPlan
    bound_s: float


@dataclass(frozen=True, slots=True)
class _Choice:
    """Origin of the labels of a front: degrees, numbers of strategies, counts."""

    sets: DegreeSets
    numbers: list[list[int]]
    counts: np.ndarray


class Subproblem:
    """Strategy set with a strategy of the ends."""

    def __init__(self, strategies: StrategySet, ends: HeadStrategy, usable_mb: int) -> None:
        self.strategies = strategies
        self.ends = ends
        self._rooms = strategies.rooms(ends, usable_mb)
        self._forms = forms_of(strategies.options.stages, strategies.options.microbatches)
        self._values = [
            [self._value(stage, form) for form in self._forms] for stage in range(len(self._rooms))
        ]
        self.bound_s = max(sum(column) for column in zip(*self._values, strict=True))

    def solve(self, best_s: float, most: int | None = None) -> SubproblemSolution | None:
        """Best plan below ``best_s``; None if there is none.

        Args:
            best_s: exclusive upper limit in seconds.
            most: labels kept at a time; None: all, for an exact solution.
        """
        fronts: list[ParetoFront] = []
        choices: list[list[_Choice]] = []
        for stage in range(len(self._rooms)):
            front, chosen = self._front(stage, best_s, most)
            if front is None:
                return None
            fronts.append(front)
            choices.append(chosen)
        joined = join_stages(fronts, self.strategies.options.microbatches)
        stages = [
            self._layers(choices[stage], fronts[stage], row)
            for stage, row in enumerate(joined.rows)
        ]
        options = self.strategies.options
        plan = GalvatronPlan(
            layers=tuple(strategy for stage_layers in stages for strategy in stage_layers),
            ends=self.ends.strategy,
            microbatches=options.microbatches,
            division=options.division,
        )
        return SubproblemSolution(joined.step_s, plan, joined.bound_s)

    def _value(self, stage: int, form: LinearForm) -> float:
        plain, reduce = form.plain[stage], form.reduce[stage]
        relaxed = self.strategies.knapsack(stage, None, plain, reduce).at(self._rooms[stage])
        return relaxed.least + (plain - reduce) * self.ends.seconds[stage]

    def _front(
        self, stage: int, best_s: float, most: int | None
    ) -> tuple[ParetoFront | None, list[_Choice]]:
        """Plans of a stage for possibly better steps."""
        ends_s = self.ends.seconds[stage]
        others = [
            sum(row[n] for s, row in enumerate(self._values) if s != stage)
            + (form.plain[stage] - form.reduce[stage]) * ends_s
            for n, form in enumerate(self._forms)
        ]
        constants: dict[tuple[int, int], float] = {}
        for form, constant in zip(self._forms, others, strict=True):
            key = (form.plain[stage], form.reduce[stage])
            constants[key] = max(constants.get(key, -np.inf), constant)
        labels: list[StageLabels] = []
        choices: list[_Choice] = []
        for sets in self.strategies.sets(stage):
            if self._exceeds(stage, None, sets.seconds, constants, best_s):
                break  # the others change degrees at a higher cost
            if self._exceeds(stage, sets, sets.seconds, constants, best_s):
                continue
            plans = self._labels(stage, sets, constants, best_s, most)
            if len(plans):
                numbers = [n for _, n in self.strategies.runs(stage, _degrees(sets))]
                choices.append(_Choice(sets, numbers, plans.counts))
                labels.append(plans)
        if not labels:
            return None, []
        return pareto_front_of(
            [
                part.plain_s + choice.sets.seconds + ends_s
                for part, choice in zip(labels, choices, strict=True)
            ],
            [part.reduce_s - ends_s for part in labels],
        ), choices

    def _exceeds(
        self,
        stage: int,
        sets: DegreeSets | None,
        reshard_s: float,
        constants: dict[tuple[int, int], float],
        best_s: float,
    ) -> bool:
        """True if these degrees' bound is no better than ``best_s``."""
        orders = None if sets is None else _degrees(sets)
        return any(
            constant
            + self.strategies.knapsack(stage, orders, plain, reduce).at(self._rooms[stage]).least
            + plain * reshard_s
            >= best_s * (1 - ROUNDING)
            for (plain, reduce), constant in constants.items()
        )

    def _labels(
        self,
        stage: int,
        sets: DegreeSets,
        constants: dict[tuple[int, int], float],
        best_s: float,
        most: int | None,
    ) -> StageLabels:
        orders, room = _degrees(sets), self._rooms[stage]
        forms = [
            StageForm(
                plain,
                reduce,
                constant + plain * sets.seconds,
                self.strategies.knapsack(stage, orders, plain, reduce).at(room).per_mb,
            )
            for (plain, reduce), constant in constants.items()
        ]
        runs = [run for run, _ in self.strategies.runs(stage, orders)]
        labels = stage_labels(runs, room, forms, best_s, most)
        return labels.take(self._uses_all(stage, orders, labels.counts))

    def _uses_all(self, stage: int, orders: Orders, counts: Ints) -> np.ndarray:
        used, start = np.ones(len(counts), dtype=bool), 0
        strategies = self.strategies.options.strategies
        for degrees, (_, numbers) in zip(orders, self.strategies.runs(stage, orders), strict=True):
            run_degrees = np.array([strategies[k].degree for k in numbers])
            for degree in degrees:
                columns = start + np.flatnonzero(run_degrees == degree)
                used &= counts[:, columns].sum(axis=1) > 0
            start += len(numbers)
        return used

    def _layers(
        self, choices: Sequence[_Choice], front: ParetoFront, row: int
    ) -> list[GalvatronStrategy]:
        """Strategies of a stage's layers, grouped by degree, recomputed ones first."""
        choice = choices[int(front.parts[row])]
        counts = choice.counts[int(front.rows[row])].tolist()
        strategies = self.strategies.options.strategies
        layers: list[GalvatronStrategy] = []
        for order, numbers in zip(choice.sets.orders, choice.numbers, strict=True):
            run = dict(zip((strategies[k] for k in numbers), counts, strict=False))
            counts = counts[len(numbers) :]
            for degree in order:
                of_degree = sorted((s for s in run if s.degree == degree), key=_recomputed_first)
                layers += [s for s in of_degree for _ in range(run[s])]
        return layers


def _recomputed_first(strategy: GalvatronStrategy) -> tuple[bool, GalvatronStrategy]:
    return (not strategy.recompute, strategy)


def _degrees(sets: DegreeSets) -> Orders:
    return tuple(tuple(sorted(order)) for order in sets.orders)
