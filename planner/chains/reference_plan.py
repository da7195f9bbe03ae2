"""Seconds of the passes of one plan, from the bounds' tables."""

from __future__ import annotations

from collections.abc import Mapping

from ...costmodel.simulation.overlapped_passes import pair_hidden_s
from ..tables.pass_kinds import UNTIL_MESSAGE
from .critical_path import GroupSeconds
from .fixed_cuts import FixedPipeline, OptionChoice
from .pass_order import PassGroup


def choice_by_class(rows: Mapping[int, int]) -> OptionChoice:
    """Same option for all layers of a class."""
    return lambda position, layer_position: rows[layer_position.layer_class]


class ReferencePlan:
    """Pass seconds of a plan with one option per layer position."""

    def __init__(self, pipeline: FixedPipeline, choice: OptionChoice, slowdown: float) -> None:
        self._pipeline = pipeline
        self._slowdown = slowdown
        self._cache: dict[tuple[int, int], tuple[float, float]] = {}
        self._choice = choice

    def __call__(self, passes: PassGroup) -> GroupSeconds:
        """Seconds of passes with a common start."""
        seconds = [self._pass(*position_and_kind) for position_and_kind in passes]
        if len(seconds) == 1:
            ((position, kind),), time_s = passes, seconds[0][0]
            output_s = self._pass(position, int(UNTIL_MESSAGE[kind]))[0]
            return GroupSeconds(time_s, max(0.0, time_s - output_s))
        (one_s, one_overlappable_s), (other_s, other_overlappable_s) = seconds
        overlappable_s = one_overlappable_s + other_overlappable_s
        hidden_s = pair_hidden_s(one_s, other_s, overlappable_s, self._slowdown)
        return GroupSeconds(one_s + other_s - hidden_s, 0.0)

    def _pass(self, position: int, pass_kind: int) -> tuple[float, float]:
        """Seconds of a pass, and the part open to overlap."""
        key = (position, pass_kind)
        if key not in self._cache:
            tables = self._pipeline.tables
            position_counts = self._pipeline.position_counts[position]
            work = traffic = wire = overlappable = slowdown = largest = 0.0
            for layer_position, count in position_counts.items():
                table = tables[layer_position.layer_class]
                row = self._choice(position, layer_position)
                columns = table.columns[row]
                work += count * columns["work"][pass_kind]
                traffic += count * columns["traffic"][pass_kind]
                wire += count * columns["wire"][pass_kind]
                overlappable += count * columns["overlappable"][pass_kind]
                slowdown += count * columns["slowdown"][pass_kind]
                largest = max(largest, columns["slowdown"][pass_kind])
                if layer_position.is_first:
                    work += table.first_exposed_s[row, pass_kind]
                else:
                    work += count * table.inner_s[row, pass_kind]
                if layer_position.is_last:
                    work += table.last_exposed_s[row, pass_kind]
            traffic += min(
                tables[layer_position.layer_class].least_s[pass_kind]
                for layer_position in position_counts
            )
            seconds = float(max(work + slowdown - largest, traffic, wire))
            self._cache[key] = (seconds, float(overlappable))
        return self._cache[key]
