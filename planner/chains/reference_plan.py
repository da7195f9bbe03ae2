"""Seconds of the passes of one plan, from the tables that bounds are made of."""

from __future__ import annotations

from collections.abc import Mapping

from ...costmodel.simulation.overlapped_passes import pair_hidden_s
from ..tables.pass_table import INSIDE, SHARED, TRAFFIC, WIRE, WORK
from .fixed_cuts import FixedPipeline, OptionChoice
from .pass_order import PassGroup


def choice_by_class(rows: Mapping[int, int]) -> OptionChoice:
    """The same option for all layers of a kind."""
    return lambda position, layer_position: rows[layer_position[0]]


class ReferencePlan:
    """Seconds of the passes of a plan with one option for each seat of a position."""

    def __init__(self, cut: FixedPipeline, choice: OptionChoice, slowdown: float) -> None:
        self._cut = cut
        self._slowdown = slowdown
        self._known: dict[tuple[int, int], tuple[float, float]] = {}
        self._choice = choice

    def __call__(self, places: PassGroup) -> float:
        """Seconds of passes that start together."""
        parts = [self._pass(*place) for place in places]
        if len(parts) == 1:
            return parts[0][0]
        (one_s, one_inside_s), (other_s, other_inside_s) = parts
        inside_s = one_inside_s + other_inside_s
        return one_s + other_s - pair_hidden_s(one_s, other_s, inside_s, self._slowdown)

    def _pass(self, position: int, number: int) -> tuple[float, float]:
        """Seconds of a pass, and of what hides beside another."""
        key = (position, number)
        if key not in self._known:
            tables, layer_positions = self._cut.tables, self._cut.places[position]
            work = traffic = wire = inside = shared = largest = 0.0
            for layer_position, count in layer_positions.items():
                table, row = tables[layer_position[0]], self._choice(position, layer_position)
                column = table.columns[row, :, number]
                work += count * column[WORK]
                traffic += count * column[TRAFFIC]
                wire += count * column[WIRE]
                inside += count * column[INSIDE]
                shared += count * column[SHARED]
                largest = max(largest, column[SHARED])
                if layer_position[-2]:
                    work += table.hidden_s[1, row, number]
                if layer_position[-1]:
                    work += table.hidden_s[2, row, number]
            traffic += min(
                tables[layer_position[0]].least_s[number] for layer_position in layer_positions
            )
            self._known[key] = (float(max(work + shared - largest, traffic, wire)), float(inside))
        return self._known[key]
