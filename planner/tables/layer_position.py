"""Seats: where a layer sits in its chunk, and what of its hidden traffic shows there.

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
Seat = tuple[int, int, tuple[int, ...], bool, bool]
"""Kind of layers, layers and kinds of their chunk, and whether it begins or ends with them."""


def seats_of(chunk: Sequence[int]) -> Counter[Seat]:
    """How many layers of a chunk are in each seat.

    Args:
        chunk: the kinds of its layers.
    """
    layers, kinds = len(chunk), tuple(sorted({*chunk}))
    ends = {0, layers - 1}
    found = Counter((chunk[n], layers, kinds, n == 0, n == layers - 1) for n in ends)
    return found + Counter((kind, layers, kinds, False, False) for kind in chunk[1:-1])


class Seats:
    """The seats of a place; those in which a kind costs the same are alike.

    Args:
        tables: of each layer kind.
    """

    def __init__(self, tables: Mapping[int, PassTable]) -> None:
        self.tables = tables
        self._alike: dict[Seat, tuple[Seat, Floats]] = {}
        self._differing: dict[int, list[tuple[Seat, Floats]]] = {kind: [] for kind in tables}

    def like(self, seat: Seat) -> Seat:
        """The first known seat in which the kind costs the same."""
        return self._first(seat)[0]

    def shown(self, seat: Seat) -> Floats | None:
        """Hidden traffic that shows all the same, shape (options, KINDS); None where none does."""
        shown_s = self._first(seat)[1]
        return shown_s if shown_s.any() else None

    def columns(self, seat: Seat) -> Floats:
        """Columns of the options of a layer, with what shows there of its hidden traffic."""
        columns, shown_s = self.tables[seat[0]].columns, self.shown(seat)
        if shown_s is None:
            return columns
        columns = columns.copy()
        columns[:, WORK] += shown_s
        return columns

    def _first(self, seat: Seat) -> tuple[Seat, Floats]:
        """The first known seat in which as much shows, and how much does."""
        if seat not in self._alike:
            own_s, known = self._shown(seat), self._differing[seat[0]]
            found = next((each for each in known if np.array_equal(own_s, each[1])), None)
            if found is None:
                found = (seat, own_s)
                known.append(found)
            self._alike[seat] = found
        return self._alike[seat]

    def _shown(self, seat: Seat) -> Floats:
        kind, layers, kinds, first, last = seat
        most_s = np.max([self.tables[other].most_s for other in kinds], axis=0)
        return self.tables[kind].shown_s(layers, most_s, first, last)
