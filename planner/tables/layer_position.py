"""Layer positions in a chunk, and the communication exposed at each.

Layers of a chunk with equal costs share a position: one layer class, at the chunk's first or last
layer or between. Most positions hide all communication, so most positions of a class in a stage
context cost the same; with the last layer a backward begins, which takes memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .arrays import Floats, Records
from .pass_table import PassTable


class LayerPosition(NamedTuple):
    """Layer class, layers and classes of its chunk, and end flags."""

    layer_class: int
    layers: int
    layer_classes: tuple[int, ...]
    is_first: bool
    is_last: bool


def count_positions(chunk: Sequence[int]) -> Counter[LayerPosition]:
    """Number of layers of a chunk in each position."""
    layers, layer_classes = len(chunk), tuple(sorted({*chunk}))
    ends = {0, layers - 1}
    counts = Counter(
        LayerPosition(chunk[n], layers, layer_classes, n == 0, n == layers - 1) for n in ends
    )
    return counts + Counter(
        LayerPosition(layer_class, layers, layer_classes, False, False)
        for layer_class in chunk[1:-1]
    )


class _ExposedTraffic(NamedTuple):
    """A position, and the seconds exposed there, shape (options, KINDS)."""

    position: LayerPosition
    exposed_s: Floats


class LayerPositions:
    """Layer positions of a stage context, by equal costs."""

    def __init__(self, tables: Mapping[int, PassTable]) -> None:
        self.tables = tables
        self._representatives: dict[LayerPosition, _ExposedTraffic] = {}
        self._distinct: dict[int, list[_ExposedTraffic]] = {
            layer_class: [] for layer_class in tables
        }

    def equivalent_position(self, layer_position: LayerPosition) -> LayerPosition:
        """First position seen of equal cost for the layer class."""
        return self._representative(layer_position).position

    def exposed_s(self, layer_position: LayerPosition) -> Floats | None:
        """Seconds of communication beyond the columns, (options, KINDS); None if all 0."""
        exposed_s = self._representative(layer_position).exposed_s
        return exposed_s if exposed_s.any() else None

    def option_costs(self, layer_position: LayerPosition) -> Records:
        """``PASS_COLUMNS`` of a layer's options, exposed communication included in work."""
        columns = self.tables[layer_position.layer_class].columns
        exposed_s = self.exposed_s(layer_position)
        if exposed_s is None:
            return columns
        columns = columns.copy()
        columns["work"] += exposed_s
        return columns

    def _representative(self, layer_position: LayerPosition) -> _ExposedTraffic:
        if layer_position not in self._representatives:
            exposed_s = self._exposed_s(layer_position)
            distinct = self._distinct[layer_position.layer_class]
            for candidate in distinct:
                same_end = layer_position.is_last == candidate.position.is_last
                if same_end and np.array_equal(exposed_s, candidate.exposed_s):
                    break
            else:
                candidate = _ExposedTraffic(layer_position, exposed_s)
                distinct.append(candidate)
            self._representatives[layer_position] = candidate
        return self._representatives[layer_position]

    def _exposed_s(self, layer_position: LayerPosition) -> Floats:
        layer_class, layers, layer_classes, first, last = layer_position
        most_s = np.max([self.tables[other].most_s for other in layer_classes], axis=0)
        return self.tables[layer_class].exposed_s(layers, most_s, first, last)
