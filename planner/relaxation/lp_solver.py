"""Growing linear program: named columns and rows, passed to HiGHS in batches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from ..tables.arrays import Floats

highspy: Any
try:
    highspy = import_module("highspy")
except ImportError:  # bounds are looser then, which a report says (planner/space/coverage.py)
    highspy = None

INFINITE = float("inf")


class LpOptimum(NamedTuple):
    """Values of the columns and dual values of the rows, by number."""

    values: Floats
    duals: Floats


def has_solver() -> bool:
    """True if highspy, the solver's package, is installed."""
    return highspy is not None


class _PendingLines:
    """Columns or rows not yet passed to the solver.

    Args:
        attributes: numbers of each line besides its entries: an objective weight, or two limits.
    """

    def __init__(self, attributes: int) -> None:
        self.attributes: list[list[float]] = [[] for _ in range(attributes)]
        self.starts: list[int] = []
        self.index: list[int] = []
        self.value: list[float] = []

    def add(
        self, attributes: Sequence[float], index: Sequence[int], value: Sequence[float]
    ) -> None:
        """Add a line with its entries."""
        for values, attribute in zip(self.attributes, attributes, strict=True):
            values.append(attribute)
        self.starts.append(len(self.index))
        self.index += index
        self.value += value

    def entries(self) -> tuple[int, Any, Any, Any]:
        """Number of entries, starts of the lines, indices and values."""
        starts, index = (np.array(part, dtype=np.int32) for part in (self.starts, self.index))
        return len(self.index), starts, index, np.array(self.value, dtype=np.float64)


class LpSolver:
    """Minimization from the last optimum, columns non-negative.

    ``columns`` and ``rows``: line numbers by name.
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
        objective_weight: float = 0.0,
        rows: Sequence[int] = (),
        value: Sequence[float] = (),
    ) -> int:
        """Add a column with its entries in existing rows.

        Returns:
            Its number.

        Raises:
            ValueError: a row does not exist, or the name is taken.
        """
        if rows and max(rows) >= self._flushed_rows:
            if max(rows) >= len(self.rows):
                raise ValueError(f"there is no row {max(rows)} among {len(self.rows)}")
            self._flush()
        if name in self.columns:
            raise ValueError(f"there is a column {name!r}")
        self._new_columns.add((objective_weight,), rows, value)
        self.columns[name] = len(self.columns)
        return self.columns[name]

    def row(
        self,
        name: Hashable,
        limits: tuple[float, float],
        columns: Sequence[int] = (),
        value: Sequence[float] = (),
    ) -> None:
        """Add a row between two limits, with its entries in existing columns.

        Raises:
            ValueError: the name is taken.
        """
        if name in self.rows:
            raise ValueError(f"there is a row {name!r}")
        self._new_rows.add(limits, columns, value)
        self.rows[name] = len(self.rows)

    def optimum(self) -> LpOptimum | None:
        """Optimum; None if none was found or there is no solver."""
        self._flush()
        if self._solver is None:
            return None
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        return LpOptimum(np.array(solution.col_value), np.array(solution.row_dual))

    def _flush(self) -> None:
        """Pass new lines to the solver, columns first: their rows exist there."""
        columns, rows = self._new_columns, self._new_rows
        self._new_columns, self._new_rows = _PendingLines(1), _PendingLines(2)
        self._flushed_rows = len(self.rows)
        if self._solver is None:
            return
        if columns.starts:
            count, weights = len(columns.starts), np.array(columns.attributes[0])
            limits = np.zeros(count), np.full(count, INFINITE)
            self._solver.addCols(count, weights, *limits, *columns.entries())
        if rows.starts:
            low, high = map(np.array, rows.attributes)
            self._solver.addRows(len(rows.starts), low, high, *rows.entries())
