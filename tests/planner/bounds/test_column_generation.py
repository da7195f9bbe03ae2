"""A program that grows has the optimum of the same program given whole."""

from __future__ import annotations

import random

import numpy as np
import pytest

from shardwright.planner.relaxation.lp_solver import INFINITE, LpSolver

highspy = pytest.importorskip("highspy")
SEEDS = 20


class _Whole:
    """The same program as lists: least cost of columns x ≥ 0 with rows of at least so much."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.rows: list[tuple[float, dict[int, float]]] = []

    def optimum(self) -> float:
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        columns = [solver.addVariable(obj=cost) for cost in self.costs]
        for low, values in self.rows:
            solver.addConstr(sum(columns[n] * value for n, value in values.items()) >= low)
        solver.run()
        return float(solver.getInfo().objective_function_value)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_columns_and_rows_in_any_order(seed: int) -> None:
    source, solver, whole = random.Random(seed), LpSolver(), _Whole()
    for number in range(40):
        if number < 3 or source.random() < 0.5:
            rows = source.sample(range(len(whole.rows)), min(3, len(whole.rows)))
            values = [source.uniform(0.1, 2) for _ in rows]
            whole.costs.append(source.uniform(1, 5))
            assert solver.column(number, whole.costs[-1], rows, values) == len(whole.costs) - 1
            for row, value in zip(rows, values, strict=True):
                whole.rows[row][1][len(whole.costs) - 1] = value
        else:
            columns = source.sample(range(len(whole.costs)), 2)
            values, low = [source.uniform(0.1, 2) for _ in columns], source.uniform(0, 3)
            whole.rows.append((low, dict(zip(columns, values, strict=True))))
            solver.row(number, (low, INFINITE), columns, values)
            assert solver.rows[number] == len(whole.rows) - 1
        if number % 7 == 6:
            _check(solver, whole)
    _check(solver, whole)


def _check(solver: LpSolver, whole: _Whole) -> None:
    """The same least cost, and dual values that say so too."""
    found = solver.optimum()
    assert found is not None
    assert (len(found.values), len(found.duals)) == (len(whole.costs), len(whole.rows))
    cost = float(np.dot(found.values, whole.costs))
    assert cost == pytest.approx(whole.optimum(), rel=1e-6, abs=1e-9)
    assert float(np.dot(found.duals, [low for low, _ in whole.rows])) == pytest.approx(
        cost, rel=1e-6, abs=1e-9
    )


def test_an_entry_in_a_row_that_is_not_there_is_an_error() -> None:
    solver = LpSolver()
    solver.column("x", 1.0)
    with pytest.raises(ValueError, match="row"):
        solver.column("y", 1.0, [0], [1.0])
