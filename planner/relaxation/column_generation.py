"""Column and row generation of a relaxed step: relevant options and chains.

Options cheaper than the master's under its dual prices enter; chains are critical paths of the
relaxed layers' passes. Bounds only grow, and all are sound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN, pair_hidden_s
from ..chains.chain_weights import of_column, weighted_columns
from ..chains.critical_path import GroupSeconds, critical_chains
from ..chains.pass_chains import Chain, Pipeline
from ..chains.pass_order import PassGroup
from ..tables.arrays import Floats, as_matrix
from ..tables.pass_kinds import UNTIL_MESSAGE
from ..tables.pass_table import PASS_COLUMNS
from .dual_prices import DualPrices, lagrangian_bound
from .layer_groups import LayerGroups
from .restricted_master import FractionalOptions, MasterSolution, RestrictedMaster, chain_constraint

MAX_ROUNDS = 64
"""Times that a relaxed step is timed for new chains."""
BOUND_TOLERANCE = 1e-3
"""Programs, timings and bounds within this relative distance are as good as equal."""
MAX_STALLED_ROUNDS = 6
"""Rounds after which a bound that did not grow is not raised any more."""


@dataclass(frozen=True, slots=True)
class RelaxedBound:
    """Bound of a relaxed step, with the last program's layers and duals."""

    seconds: float
    mix: FractionalOptions | None
    dual_prices: DualPrices | None


class ColumnGeneration:
    """Relaxation of one pipeline.

    Args:
        groups: of the pipeline.
        pipeline: its schedule, stages, chunks a stage and micro-batches.
        slowdown: factor of work and communication sharing the device, at most 2.
        budgets: bytes of each memory and stage, shape (memories, stages).
    """

    def __init__(
        self,
        groups: LayerGroups,
        pipeline: Pipeline,
        slowdown: float,
        budgets: Floats,
    ) -> None:
        self.groups, self.pipeline, self.slowdown = groups, pipeline, slowdown
        self.budgets = budgets
        self._master = RestrictedMaster(groups, budgets, min(slowdown, MAX_SLOWDOWN))
        for memory in range(len(budgets)):
            self.add_option(_smallest(bytes_, memory) for bytes_ in groups.bytes)

    def enforce(self, chains: Iterable[Chain]) -> None:
        """Constrain the step to at least these chains."""
        for chain in chains:
            self._master.enforce(chain_constraint(chain))

    def add_option(self, options: Iterable[int]) -> bool:
        """Offer an option of each group; True if any is new."""
        new = [self._master.add_option(number, option) for number, option in enumerate(options)]
        return any(new)

    def bound(self, enough_s: float, adds_critical_paths: bool) -> RelaxedBound:
        """Bound of every plan with these groups.

        Args:
            enough_s: a bound as high as this is high enough.
            adds_critical_paths: True to time steps for new chains.
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
            step_s, critical = self._critical_chains(solution.mix)
            if step_s <= solution.seconds * (1 + BOUND_TOLERANCE):
                break
            self.enforce(critical)
        return RelaxedBound(best_s, mix, dual_prices)

    def _generate_columns(self, enough_s: float) -> tuple[MasterSolution | None, float]:
        """Optimum with all relevant options, and the bound from its duals."""
        best_s = 0.0
        while True:
            solution = self._master.solution()
            if solution is None:
                return None, best_s
            bound_s, options = lagrangian_bound(self.groups, solution.dual_prices, self.budgets)
            best_s = max(best_s, bound_s)
            target_s = min(enough_s, solution.seconds * (1 - BOUND_TOLERANCE))
            if best_s >= target_s or not self.add_option(options):
                return solution, best_s

    def _critical_chains(self, mix: FractionalOptions) -> tuple[float, list[Chain]]:
        """Seconds of the step of a mix, and its critical paths."""
        totals = np.zeros(self.groups.shape.positions, PASS_COLUMNS)
        totals_matrix = as_matrix(totals)  # a view
        travel_s = self.groups.travel_s.copy()
        for number, layers_by_option in enumerate(mix):
            position = self.groups.groups[number].position
            option_costs = as_matrix(self.groups.option_costs(number))
            for row, layers in layers_by_option.items():
                totals_matrix[position] += layers * option_costs[row]
                if number in self.groups.extra_send_s:
                    extra_s = layers * self.groups.extra_send_s[number][row]
                    travel_s[0, position + 1] += extra_s
                    travel_s[1, position] += extra_s
        weighted_s = weighted_columns(totals) + self.groups.per_pass_s
        of_column(weighted_s, "slowdown")[...] += totals["work"]
        seconds = weighted_s.max(axis=1)

        def pass_s(passes: PassGroup) -> GroupSeconds:
            """Seconds of passes with a common start."""
            one_s, *other_s = (float(seconds[position_and_kind]) for position_and_kind in passes)
            if not other_s:
                ((position, kind),) = passes
                output_s = float(seconds[position, UNTIL_MESSAGE[kind]])
                return GroupSeconds(one_s, max(0.0, one_s - output_s))
            overlappable_s = sum(
                float(totals["overlappable"][position_and_kind]) for position_and_kind in passes
            )
            hidden_s = pair_hidden_s(one_s, other_s[0], overlappable_s, self.slowdown)
            return GroupSeconds(one_s + other_s[0] - hidden_s, 0.0)

        return critical_chains(self.pipeline, pass_s, travel_s.tolist())


def _smallest(bytes_: Floats, memory: int) -> int:
    """The option of fewest bytes in a memory, of equal ones the first smallest on the device."""
    fewest = np.flatnonzero(bytes_[memory] == bytes_[memory].min())
    return int(fewest[bytes_[0][fewest].argmin()])
