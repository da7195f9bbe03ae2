"""A relaxed step: the program of some options and chains, and more of both while they matter.

Options come that cost less than those at hand under the program's prices; chains come from
playing the relaxed layers' passes. Bounds only grow, and all of them are sound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN, pair_hidden_s
from ..chains.chain_weights import WEIGHTED_COLUMNS
from ..chains.critical_path import critical_chains
from ..chains.fixed_cuts import Floats
from ..chains.pass_chains import Chain, Pipeline
from ..chains.pass_order import PassGroup
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import COLUMNS, INSIDE, SHARED, WORK
from .dual_prices import DualPrices, lagrangian_bound
from .layer_groups import LayerGroups
from .restricted_master import FractionalOptions, MasterSolution, RestrictedMaster, chain_constraint

MAX_ROUNDS = 64
"""Times that a relaxed step is played for new chains."""
BOUND_TOLERANCE = 1e-3
"""Programs, plays and bounds within this relative distance are as good as equal."""
MAX_STALLED_ROUNDS = 6
"""Rounds after which a bound that did not grow is not raised any more."""


@dataclass(frozen=True, slots=True)
class RelaxedBound:
    """What is known of a relaxed step: a bound, and layers and prices of the last program."""

    seconds: float
    mix: FractionalOptions | None
    dual_prices: DualPrices | None


class ColumnGeneration:
    """The relaxation of one pipeline.

    Args:
        groups: of the pipeline.
        pipeline: its schedule, stages, chunks a stage and micro-batches.
        slowdown: factor of work and communication while they share the device, at most 2.
        budget_bytes: of each stage.
    """

    def __init__(
        self,
        groups: LayerGroups,
        pipeline: Pipeline,
        slowdown: float,
        budget_bytes: Floats,
    ) -> None:
        self.groups, self.pipeline, self.slowdown = groups, pipeline, slowdown
        self.budget_bytes = budget_bytes
        self._master = RestrictedMaster(groups, budget_bytes, min(slowdown, MAX_SLOWDOWN))
        self.add_option(int(bytes_.argmin()) for bytes_ in groups.bytes)

    def enforce(self, chains: Iterable[Chain]) -> None:
        """Have the step be as long as these chains."""
        for chain in chains:
            self._master.enforce(chain_constraint(chain))

    def add_option(self, options: Iterable[int]) -> bool:
        """Offer an option of each cell; whether any is new."""
        new = [self._master.add_option(*each) for each in enumerate(options)]
        return any(new)

    def bound(self, enough_s: float, adds_critical_paths: bool) -> RelaxedBound:
        """A bound of every plan with these cells.

        Args:
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: whether steps are played for new chains.
        """
        best_s, stalled, mix, dual_prices = 0.0, 0, None, None
        for _ in range(MAX_ROUNDS if adds_critical_paths else 1):
            solution, bound_s = self._generate_columns(enough_s)
            if solution is None:
                break
            stalled = 0 if bound_s > best_s * (1 + BOUND_TOLERANCE) else stalled + 1
            best_s, mix, dual_prices = max(best_s, bound_s), solution.mix, solution.dual_prices
            if best_s >= enough_s or stalled >= MAX_STALLED_ROUNDS or not adds_critical_paths:
                break
            played_s, found = self._critical_chains(solution.mix)
            if played_s <= solution.seconds * (1 + BOUND_TOLERANCE):
                break
            self.enforce(found)
        return RelaxedBound(best_s, mix, dual_prices)

    def _generate_columns(self, enough_s: float) -> tuple[MasterSolution | None, float]:
        """The program with all options that matter, and the bound that its prices give."""
        best_s = 0.0
        while True:
            solution = self._master.solution()
            if solution is None:
                return None, best_s
            bound_s, options = lagrangian_bound(
                self.groups, solution.dual_prices, self.budget_bytes
            )
            best_s = max(best_s, bound_s)
            if best_s >= min(
                enough_s, solution.seconds * (1 - BOUND_TOLERANCE)
            ) or not self.add_option(options):
                return solution, best_s

    def _critical_chains(self, mix: FractionalOptions) -> tuple[float, list[Chain]]:
        """Seconds of the step of a mix, and its critical paths."""
        figures = np.zeros((self.groups.shape.positions, COLUMNS, KINDS))
        travel_s = self.groups.travel_s.copy()
        for number, own in enumerate(mix):
            place = self.groups.groups[number].position
            for row, layers in own.items():
                figures[place] += layers * self.groups.columns(number)[row]
                if number in self.groups.extra_send_s:
                    more_s = layers * self.groups.extra_send_s[number][row]
                    travel_s[0, place + 1] += more_s
                    travel_s[1, place] += more_s
        weightings = figures[:, list(WEIGHTED_COLUMNS)] + self.groups.per_pass_s
        weightings[:, WEIGHTED_COLUMNS.index(SHARED)] += figures[:, WORK]
        seconds = weightings.max(axis=1)

        def pass_s(places: PassGroup) -> float:
            """Seconds of passes that start together."""
            own = [float(seconds[place]) for place in places]
            if len(own) == 1:
                return own[0]
            inside_s = sum(float(figures[position, INSIDE, kind]) for position, kind in places)
            return sum(own) - pair_hidden_s(own[0], own[1], inside_s, self.slowdown)

        return critical_chains(self.pipeline, pass_s, travel_s.tolist())
