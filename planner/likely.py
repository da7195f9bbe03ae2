"""Good plans of a likely shape: layer search and stage partition, then simulation.

One activation layout (tensor-parallel degree, sequence parallelism) at a time, so that layers
need no moves between them; the ends of the model may have their own. Where the simulated plan
overflows a device, the budget is lowered by the overflow and the search repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .candidates import Decision, Outcome
from .exhaustive import first_in_flight
from .layer_search import LayerSearch
from .options import OptionTable
from .space import Shape
from .stage_partition import even_cuts, partition

ATTEMPTS = 4
LAYOUTS = 3
SLACK = 1.02
Try = Callable[[Decision], Outcome | None]


class LikelyPlans:
    """Searches shapes for plans worth simulating.

    Args:
        kinds: the kind of every layer.
        live_budget: live bytes a device of a shape can hold.
    """

    def __init__(self, kinds: tuple[int, ...], live_budget: Callable[[Shape], float]) -> None:
        self.kinds = kinds
        self.live_budget = live_budget

    def search(self, shape: Shape, tables: list[OptionTable], attempt: Try) -> None:
        """Try the best plan of each promising layout of a shape."""
        for layout in self._layouts(tables):
            chosen = {
                kind: _in_layout(tables[self.kinds.index(kind)], layout)
                for kind in set(self.kinds)
            }
            self._search_layout(shape, chosen, attempt)

    def _layouts(self, tables: list[OptionTable]) -> list[int]:
        """Layouts of the middle layers, fastest first."""
        table = tables[len(tables) // 2]
        best = {
            layout: float(table.step_estimate_s[table.layouts == layout].min())
            for layout in sorted(set(table.layouts.tolist()))
        }
        return sorted(best, key=lambda layout: (best[layout], layout))[: 2 * LAYOUTS]

    def _search_layout(
        self, shape: Shape, chosen: dict[int, OptionTable], attempt: Try
    ) -> None:
        budgets = [self.live_budget(shape)] * shape.stages
        for _ in range(ATTEMPTS):
            decision = self._decide(shape, chosen, budgets)
            if decision is None:
                return
            outcome = attempt(decision)
            if outcome is None or outcome.feasible:
                return
            for row in outcome.simulation.memory:
                over = row.reserved_bytes * SLACK - row.capacity_bytes
                if over > 0:
                    budgets[row.stage] -= over

    def _decide(
        self, shape: Shape, chosen: dict[int, OptionTable], budgets: list[float]
    ) -> Decision | None:
        """Cuts and strategies with the least estimated bottleneck within the budgets."""
        held = [sum(first_in_flight(shape, s)) / shape.chunks for s in range(shape.stages)]
        searches = [LayerSearch(chosen, in_flight) for in_flight in held]
        if shape.chunks == 1:
            return self._cut_stages(shape, searches, budgets)
        return self._cut_evenly(shape, searches, budgets)

    def _cut_stages(
        self, shape: Shape, searches: list[LayerSearch], budgets: list[float]
    ) -> Decision | None:
        def seconds(stage: int, start: int, stop: int) -> float:
            return searches[stage].best_seconds(self.kinds[start:stop], budgets[stage])

        cuts = partition(len(self.kinds), shape.stages, seconds)
        if cuts is None:
            return None
        strategies = []
        for stage in range(shape.stages):
            choice = searches[stage].best(self.kinds[cuts[stage] : cuts[stage + 1]], budgets[stage])
            if choice is None:
                return None
            strategies += choice.strategies
        return Decision(shape, tuple(cuts), tuple(strategies))

    def _cut_evenly(
        self, shape: Shape, searches: list[LayerSearch], budgets: list[float]
    ) -> Decision | None:
        """Virtual stages of equal size; the chunks of a stage share its budget."""
        cuts = even_cuts(len(self.kinds), shape.positions)
        parts: dict[int, tuple[object, ...]] = {}
        for stage in range(shape.stages):
            positions = [c * shape.stages + stage for c in range(shape.chunks)]
            kinds = tuple(k for p in positions for k in self.kinds[cuts[p] : cuts[p + 1]])
            choice = searches[stage].best(kinds, budgets[stage])
            if choice is None:
                return None
            offset = 0
            for p in positions:
                size = cuts[p + 1] - cuts[p]
                parts[p] = choice.strategies[offset : offset + size]
                offset += size
        strategies = tuple(s for p in range(shape.positions) for s in parts[p])
        return Decision(shape, tuple(cuts), strategies)  # type: ignore[arg-type]


def _in_layout(table: OptionTable, layout: int) -> OptionTable:
    """The options with this layout, or all of them where the layer has none."""
    rows = table.layouts == layout
    return table.only(rows) if bool(np.any(rows)) else table
