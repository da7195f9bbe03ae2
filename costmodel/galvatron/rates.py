"""Galvatron's tables: lines through times, milliseconds of messages.

Message times come from the table at its exact sizes, else from its least-squares line; gradients
and pipelines are priced by bandwidth alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...datasets.galvatron.profile import LinkProfile
from ...spec.errors import InputError

GATHER_SHARE = 0.5
"""An all-gather takes half of an all-reduce."""


class Line(NamedTuple):
    """Milliseconds as a line in a size."""

    slope: float
    start: float

    def at(self, size: float) -> float:
        """Milliseconds at a size."""
        return self.slope * size + self.start


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """The least-squares line through (size, ms)."""
    sizes, times = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    middle = sizes.mean()
    slope = float(((sizes - middle) * times).sum() / ((sizes - middle) ** 2).sum())
    return Line(slope, float(times.mean()) - slope * float(middle))


def forward_line(rows: Sequence[tuple[int, float]]) -> Line:
    """Forward milliseconds over samples.

    The line goes through the origin if one batch size was measured.
    """
    if len(rows) == 1:
        return Line(rows[0][1], 0.0)
    return fitted([(samples, samples * each_ms) for samples, each_ms in rows])


class _Messages:
    """Milliseconds of one collective on a number of ranks."""

    def __init__(self, rows: Sequence[tuple[int, float]], share: float) -> None:
        self._table = {float(size): share * ms for size, ms in rows}
        self._line = fitted([(size, share * ms) for size, ms in rows])

    def at(self, size_mb: float) -> float:
        """Milliseconds of a message."""
        listed_ms = self._table.get(size_mb)
        return self._line.at(size_mb) if listed_ms is None else listed_ms


class Rates:
    """Milliseconds of messages on a cluster.

    ``where``: folder of the measurements, for error messages.
    """

    def __init__(self, machine: LinkProfile, where: str = "--galvatron-profile") -> None:
        self.slowdown = machine.slowdown
        self._where = where
        self._machine = machine
        self._gathers = {n: _Messages(r, GATHER_SHARE) for n, r in machine.allreduce_ms.items()}
        self._exchanges = {n: _Messages(r, 1.0) for n, r in machine.all2all_ms.items()}

    def gather_ms(self, ranks: int, size_mb: float) -> float:
        """Milliseconds of an all-gather, or of a reduce-scatter.

        Raises:
            InputError: that number of ranks was not measured.
        """
        return self._at(self._gathers, "allreduce", ranks).at(size_mb)

    def exchange_ms(self, ranks: int, size_mb: float) -> float:
        """Milliseconds of an all-to-all.

        Raises:
            InputError: that number of ranks was not measured.
        """
        return self._at(self._exchanges, "all2all", ranks).at(size_mb)

    def _at(self, tables: Mapping[int, _Messages], kind: str, ranks: int) -> _Messages:
        if ranks not in tables:
            key = f"{self._where}: {kind}_size_{ranks}_*MB_time"
            raise InputError(key, "nothing", f"times of {kind} on {ranks} ranks")
        return tables[ranks]

    def reduce_ms_per_mb(self, ranks: int, consecutive: bool) -> float:
        """Milliseconds per MB of gradients; 0 for one rank.

        Raises:
            InputError: that group was not measured.
        """
        if ranks == 1:
            return 0.0
        bandwidth = self._machine.allreduce.get((ranks, int(consecutive)))
        if bandwidth is None:
            key = f"{self._where}: allreduce_size_{ranks}_consec_{int(consecutive)}"
            raise InputError(key, "nothing", "the bandwidth of this group")
        return 1.0 / bandwidth

    def stage_ms_per_mb(self, stages: int) -> float:
        """Milliseconds per MB between pipeline stages.

        Raises:
            InputError: that many stages were not measured.
        """
        bandwidth = self._machine.p2p.get(stages)
        if bandwidth is None:
            raise InputError(f"{self._where}: pp_size_{stages}", "nothing", "this bandwidth")
        return 1.0 / bandwidth
