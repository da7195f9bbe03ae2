"""A linear program that grows: columns and rows by name, handed to the solver many at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ..chains.fixed_cuts import Floats

highspy: Any
try:
    highspy = import_module("highspy")
except (
    ImportError
):  # a search without it has looser bounds, and says so (planner/space/coverage.py)
    highspy = None

INFINITE = float("inf")


class LpOptimum(NamedTuple):
    """Values of the columns and dual values of the rows, by their numbers."""

    values: Floats
    duals: Floats


def has_solver() -> bool:
    """Whether programs can be solved: the package highspy is installed."""
    return highspy is not None


class _PendingLines:
    """Columns or rows that the solver does not have yet.

    Args:
        parts: numbers that each has besides its entries: a cost, or limits.
    """

    def __init__(self, parts: int) -> None:
        self.parts: list[list[float]] = [[] for _ in range(parts)]
        self.starts: list[int] = []
        self.index: list[int] = []
        self.value: list[float] = []

    def add(self, parts: Sequence[float], index: Sequence[int], value: Sequence[float]) -> None:
        """One more, with its entries."""
        for own, part in zip(self.parts, parts, strict=True):
            own.append(part)
        self.starts.append(len(self.index))
        self.index += index
        self.value += value

    def entries(self) -> tuple[int, Any, Any, Any]:
        """How many entries there are, where each line's start, their numbers and values."""
        starts, index = (np.array(own, dtype=np.int32) for own in (self.starts, self.index))
        return len(self.index), starts, index, np.array(self.value, dtype=np.float64)


class LpSolver:
    """A program to be minimised, solved again from where it was; no column is below zero.

    ``columns`` and ``rows`` are the numbers of what was added under a name.
    """

    def __init__(self) -> None:
        self.columns: dict[Hashable, int] = {}
        self.rows: dict[Hashable, int] = {}
        self._flushed_rows = 0
        self._new_columns, self._new_rows = _PendingLines(1), _PendingLines(2)
        self._solver: Any = None
        if highspy is not None:
            self._solver = highspy.Highs()
            self._solver.setOptionValue("output_flag", False)
            self._solver.setOptionValue("threads", 1)
            # Programs are small and grow: presolving the first one takes longer than solving it.
            self._solver.setOptionValue("presolve", "off")

    def column(
        self,
        name: Hashable,
        cost: float = 0.0,
        rows: Sequence[int] = (),
        value: Sequence[float] = (),
    ) -> int:
        """Add a column with its entries in rows that are there already; its number."""
        if rows and max(rows) >= self._flushed_rows:
            if max(rows) >= len(self.rows):
                raise ValueError(f"there is no row {max(rows)} among {len(self.rows)}")
            self._flush()
        if name in self.columns:
            raise ValueError(f"there is a column {name!r}")
        self._new_columns.add((cost,), rows, value)
        self.columns[name] = len(self.columns)
        return self.columns[name]

    def row(
        self,
        name: Hashable,
        limits: tuple[float, float],
        columns: Sequence[int] = (),
        value: Sequence[float] = (),
    ) -> None:
        """Add a row between two limits, with its entries in columns that are there already."""
        if name in self.rows:
            raise ValueError(f"there is a row {name!r}")
        self._new_rows.add(limits, columns, value)
        self.rows[name] = len(self.rows)

    def optimum(self) -> LpOptimum | None:
        """The optimum; None where the solver found none, or there is no solver."""
        self._flush()
        if self._solver is None:
            return None
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._solver.getSolution()
        return LpOptimum(np.array(found.col_value), np.array(found.row_dual))

    def _flush(self) -> None:
        """Columns first: their entries are in rows that the solver has."""
        columns, rows = self._new_columns, self._new_rows
        self._new_columns, self._new_rows = _PendingLines(1), _PendingLines(2)
        self._flushed_rows = len(self.rows)
        if self._solver is None:
            return
        if columns.starts:
            count, costs = len(columns.starts), np.array(columns.parts[0])
            free = np.zeros(count), np.full(count, INFINITE)
            self._solver.addCols(count, costs, *free, *columns.entries())
        if rows.starts:
            low, high = map(np.array, rows.parts)
            self._solver.addRows(len(rows.starts), low, high, *rows.entries())
