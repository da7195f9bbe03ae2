"""Bounds and estimates of the shapes of a request from chains of their passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..spec.schedule import SPLIT_KINDS
from ..spec.strategy import LayerStrategy
from .free_cuts import free_cut_bound
from .options import OptionTable, layout_number
from .pass_table import PassTable, PassTables
from .path_bounds import BoundedCut, PathBound, PathBounds
from .shape import Shape
from .stage_partition import even_cuts

if TYPE_CHECKING:
    from .shape_costs import ShapeCosts

MOST_OPTIONS, MOST_SHAPES = 500_000, 500
"""Options that are weighed on chains, those of each shape counted, and shapes that have chains."""
UNWANTED_S = 1e7
"""No bound is searched for beyond this."""


class PathCosts:
    """Paths of the shapes of a request, each followed once.

    Args:
        costs: of the same request.
    """

    def __init__(self, costs: ShapeCosts) -> None:
        self._costs = costs
        tables = costs.tables
        self._tables = PassTables(tables.lowering, tables.works, tables.pricer)
        self._places: dict[tuple[object, ...], PathBounds] = {}
        self._weighed = 0
        self._cuts: dict[tuple[Shape, float], BoundedCut] = {}
        self._found: dict[tuple[Shape, float], PathBound] = {}
        self._bounds: dict[tuple[Shape, float], tuple[float, float]] = {}
        self._messages: dict[tuple[object, float], float] = {}

    def knows(self, shape: Shape) -> bool:
        """Whether the shape was looked at, or still may be."""
        key = (shape, self._costs._live_budget(shape))
        more = self._weighed < MOST_OPTIONS and len(self._found) < MOST_SHAPES
        return more or key in self._found

    def bound(self, shape: Shape, enough_s: float = float("inf")) -> float:
        """Seconds of the passes of every plan of a shape at the least; 0 where nothing is known.

        Plans of several chunks a stage are those that are cut evenly.

        Args:
            shape: the shape.
            enough_s: a bound as high as this is high enough; up to it all is done that can be.
        """
        key = (shape, self._costs._live_budget(shape))
        known_s, done_s = self._bounds.get(key, (0.0, -1.0))
        if known_s < enough_s and done_s < enough_s and self.knows(shape):
            known_s = max(known_s, self._bound(shape, enough_s))
            self._bounds[key] = known_s, enough_s
        return known_s

    def _bound(self, shape: Shape, enough_s: float) -> float:
        if shape.stages == 1 or shape.chunks > 1:
            return self.path(shape, enough_s).seconds
        if enough_s <= 0:
            return 0.0
        budget = self._costs._live_budget(shape)
        quick_s = self._costs._quick_bound(shape) - self._costs.pricer.step_s
        most_s = min(enough_s, UNWANTED_S)
        if quick_s >= most_s:
            return quick_s
        if self._place(shape).least_bytes > budget * shape.stages:
            return float("inf")
        return free_cut_bound(self._place(shape), shape, budget, quick_s, most_s)

    def estimate(self, shape: Shape) -> float:
        """Seconds of about the best uniform plan, evenly cut; infinite where none fits."""
        return self.path(shape).estimate_s

    def path(self, shape: Shape, enough_s: float = float("inf")) -> PathBound:
        """What the chains of a shape say where it is cut evenly; ``enough_s`` as in `bound`."""
        key = (shape, self._costs._live_budget(shape))
        known = self._found.get(key)
        if known is None or (known.seconds < enough_s and not known.is_whole):
            if key not in self._cuts:
                place, cuts = (
                    self._place(shape),
                    even_cuts(len(self._costs.space.kinds), shape.positions),
                )
                self._weighed += sum(len(t.strategies) for t in place.tables.values())
                self._cuts[key] = BoundedCut(place, shape, cuts, key[1])
            known = self._found[key] = self._cuts[key].bound(enough_s)
            if known.is_whole:
                del self._cuts[key]
        return known

    def uniform(self, shape: Shape) -> tuple[LayerStrategy, ...]:
        """The strategies of all layers in about the best uniform plan; none where none fits."""
        place, rows = self._place(shape), self.path(shape).rows
        return tuple(place.tables[k].strategies[rows[k]] for k in place.kinds) if rows else ()

    def tables(self, shape: Shape) -> list[OptionTable]:
        """The options of every layer, their seconds as the chains of the shape weigh them."""
        place, shares = self._place(shape), self.path(shape).shares_s
        known = {kind: _weighed(table, shares.get(kind)) for kind, table in place.tables.items()}
        return [known[kind] for kind in place.kinds]

    def _message_s(self, shape: Shape, stage: int, peer: int, size: float) -> float:
        """Seconds of a message between two stages."""
        first, last = sorted((stage * shape.ranks, peer * shape.ranks))
        pricer = self._costs.pricer
        level = pricer.machine.level_between(first, last + shape.ranks - 1)
        key = (level, size)
        if key not in self._messages:
            self._messages[key] = pricer.message(int(size), level)
        return self._messages[key]

    def _place(self, shape: Shape) -> PathBounds:
        costs = self._costs
        samples, tied, reach = costs._samples(shape), costs._tied(shape), costs._reach(shape)
        key = (shape.ranks, samples, reach, tuple(tied))
        if key not in self._places:
            splits = any(kind in SPLIT_KINDS for kind in costs.space.schedule_kinds)
            tables = {
                kind: self._tables.table(
                    layer,
                    costs.space.options(kind, shape.ranks, samples),
                    (shape.ranks, samples, reach),
                    tied.get(layer, (layer,)),
                    splits,
                    shape.stages == 1,
                )
                for kind, layer in costs.space.first_of_kind.items()
            }
            slowdown = costs.pricer.stack.overlap_slowdown
            self._places[key] = PathBounds(tables, costs.space.kinds, slowdown, self._message_s)
        return self._places[key]


def _weighed(table: PassTable, seconds: np.ndarray | None) -> OptionTable:
    nothing = np.zeros(len(table.strategies))
    return OptionTable(
        table.strategies,
        middle_s=nothing,
        step_bound_s=nothing,
        step_estimate_s=nothing if seconds is None else seconds,
        resident_bytes=table.resident_bytes,
        kept_bytes=table.kept_bytes,
        extra_bytes=table.extra_bytes,
        layouts=np.array([layout_number(s) for s in table.strategies], dtype=np.int64),
    )
