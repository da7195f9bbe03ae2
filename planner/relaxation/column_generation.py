"""A relaxed step: the program of some options and chains, and more of both while they matter.

Options come that cost less than those at hand under the program's prices; chains come from
playing the relaxed layers' passes. Bounds only grow, and all of them are sound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...costmodel.simulation.overlapped_passes import MAX_SLOWDOWN, pair_hidden_s
from ..chains.chain_weights import WEIGHED
from ..chains.critical_path import critical_chains
from ..chains.fixed_cuts import Floats
from ..chains.pass_chains import Chain, Pipeline
from ..chains.pass_order import Places
from ..tables.pass_kinds import KINDS
from ..tables.pass_table import COLUMNS, INSIDE, SHARED, WORK
from .dual_prices import Prices, least
from .layer_groups import Cells
from .restricted_master import Mix, Program, Solved, chain_row

ROUNDS = 64
"""Times that a relaxed step is played for new chains."""
CLOSE = 1e-3
"""Programs, plays and bounds within this relative distance are as good as equal."""
STEPS_ALIKE = 6
"""Rounds after which a bound that did not grow is not raised any more."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What is known of a relaxed step: a bound, and layers and prices of the last program."""

    seconds: float
    mix: Mix | None
    prices: Prices | None


class RelaxedStep:
    """The relaxation of one pipeline.

    Args:
        cells: of the pipeline.
        pipeline: its schedule, stages, chunks a stage and micro-batches.
        slowdown: factor of work and communication while they share the device, at most 2.
        budget_bytes: of each stage.
    """

    def __init__(
        self,
        cells: Cells,
        pipeline: Pipeline,
        slowdown: float,
        budget_bytes: Floats,
    ) -> None:
        self.cells, self.pipeline, self.slowdown = cells, pipeline, slowdown
        self.budget_bytes = budget_bytes
        self._program = Program(cells, budget_bytes, min(slowdown, MAX_SLOWDOWN))
        self.offer(int(bytes_.argmin()) for bytes_ in cells.bytes)

    def follow(self, chains: Iterable[Chain]) -> None:
        """Have the step be as long as these chains."""
        for chain in chains:
            self._program.follow(chain_row(chain))

    def offer(self, options: Iterable[int]) -> bool:
        """Offer an option of each cell; whether any is new."""
        new = [self._program.offer(*each) for each in enumerate(options)]
        return any(new)

    def bound(self, enough_s: float, plays: bool) -> Relaxed:
        """A bound of every plan with these cells.

        Args:
            enough_s: a bound as high as this is high enough.
            plays: whether steps are played for new chains.
        """
        best_s, alike, mix, prices = 0.0, 0, None, None
        for _ in range(ROUNDS if plays else 1):
            solved, bound_s = self._priced(enough_s)
            if solved is None:
                break
            alike = 0 if bound_s > best_s * (1 + CLOSE) else alike + 1
            best_s, mix, prices = max(best_s, bound_s), solved.mix, solved.prices
            if best_s >= enough_s or alike >= STEPS_ALIKE or not plays:
                break
            played_s, found = self._played(solved.mix)
            if played_s <= solved.seconds * (1 + CLOSE):
                break
            self.follow(found)
        return Relaxed(best_s, mix, prices)

    def _priced(self, enough_s: float) -> tuple[Solved | None, float]:
        """The program with all options that matter, and the bound that its prices give."""
        best_s = 0.0
        while True:
            solved = self._program.solved()
            if solved is None:
                return None, best_s
            bound_s, options = least(self.cells, solved.prices, self.budget_bytes)
            best_s = max(best_s, bound_s)
            if best_s >= min(enough_s, solved.seconds * (1 - CLOSE)) or not self.offer(options):
                return solved, best_s

    def _played(self, mix: Mix) -> tuple[float, list[Chain]]:
        """Seconds of the step of a mix, and its critical paths."""
        figures = np.zeros((self.cells.shape.positions, COLUMNS, KINDS))
        travel_s = self.cells.travel_s.copy()
        for number, own in enumerate(mix):
            place = self.cells.cells[number].position
            for row, layers in own.items():
                figures[place] += layers * self.cells.columns(number)[row]
                if number in self.cells.sent_s:
                    more_s = layers * self.cells.sent_s[number][row]
                    travel_s[0, place + 1] += more_s
                    travel_s[1, place] += more_s
        ways = figures[:, list(WEIGHED)] + self.cells.promised_s
        ways[:, WEIGHED.index(SHARED)] += figures[:, WORK]
        seconds = ways.max(axis=1)

        def pass_s(places: Places) -> float:
            """Seconds of passes that start together."""
            own = [float(seconds[place]) for place in places]
            if len(own) == 1:
                return own[0]
            inside_s = sum(float(figures[position, INSIDE, kind]) for position, kind in places)
            return sum(own) - pair_hidden_s(own[0], own[1], inside_s, self.slowdown)

        return critical_chains(self.pipeline, pass_s, travel_s.tolist())
