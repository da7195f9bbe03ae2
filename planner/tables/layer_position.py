"""LayerPositions: where a layer sits in its chunk, and what of its hidden traffic shows there.

Layers of a chunk that count alike share a seat: of one kind, at the chunk's first or last place or
between. In most seats all traffic hides, so most of a place's seats cost the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .pass_table import WORK, PassTable

Floats = NDArray[np.float64]
LayerPosition = tuple[int, int, tuple[int, ...], bool, bool]
"""Kind of layers, layers and kinds of their chunk, and whether it begins or ends with them."""


def count_positions(chunk: Sequence[int]) -> Counter[LayerPosition]:
    """How many layers of a chunk are in each seat.

    Args:
        chunk: the kinds of its layers.
    """
    layers, layer_classes = len(chunk), tuple(sorted({*chunk}))
    ends = {0, layers - 1}
    found = Counter((chunk[n], layers, layer_classes, n == 0, n == layers - 1) for n in ends)
    return found + Counter((kind, layers, layer_classes, False, False) for kind in chunk[1:-1])


class LayerPositions:
    """The seats of a place; those in which a kind costs the same are alike.

    Args:
        tables: of each layer kind.
    """

    def __init__(self, tables: Mapping[int, PassTable]) -> None:
        self.tables = tables
        self._representatives: dict[LayerPosition, tuple[LayerPosition, Floats]] = {}
        self._distinct: dict[int, list[tuple[LayerPosition, Floats]]] = {
            kind: [] for kind in tables
        }

    def equivalent_position(self, layer_position: LayerPosition) -> LayerPosition:
        """The first known seat in which the kind costs the same."""
        return self._representative(layer_position)[0]

    def exposed_s(self, layer_position: LayerPosition) -> Floats | None:
        """Hidden traffic that shows all the same, shape (options, KINDS); None where none does."""
        exposed_s = self._representative(layer_position)[1]
        return exposed_s if exposed_s.any() else None

    def columns(self, layer_position: LayerPosition) -> Floats:
        """Columns of the options of a layer, with what shows there of its hidden traffic."""
        columns, exposed_s = self.tables[layer_position[0]].columns, self.exposed_s(layer_position)
        if exposed_s is None:
            return columns
        columns = columns.copy()
        columns[:, WORK] += exposed_s
        return columns

    def _representative(self, layer_position: LayerPosition) -> tuple[LayerPosition, Floats]:
        """The first known seat in which as much shows, and how much does."""
        if layer_position not in self._representatives:
            own_s, known = self._exposed_s(layer_position), self._distinct[layer_position[0]]
            found = next((each for each in known if np.array_equal(own_s, each[1])), None)
            if found is None:
                found = (layer_position, own_s)
                known.append(found)
            self._representatives[layer_position] = found
        return self._representatives[layer_position]

    def _exposed_s(self, layer_position: LayerPosition) -> Floats:
        kind, layers, layer_classes, first, last = layer_position
        most_s = np.max([self.tables[other].most_s for other in layer_classes], axis=0)
        return self.tables[kind].exposed_s(layers, most_s, first, last)
