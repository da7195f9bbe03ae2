"""Dynamic storage allocation as a mixed-integer program, solved by HiGHS through PuLP.

Minimize the arena M with offsets a: a_i + s_i <= M, and for each pair that lives together one of
a_i + s_i <= a_j and a_j + s_j <= a_i, chosen by a binary with big M the best known arena. M is cut
off below that arena, and bounded below by live bytes. Nodes are limited, never the time, so that
the answer is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from math import gcd
from typing import Any

from ...spec.errors import RunError
from ...spec.report.allocation_trace import Request, most_live_bytes
from .placement import Placement, placement

NODES = 400
"""Nodes of the search tree, at most."""
MOST_PAIRS = 1500
"""Pairs of a program at most: beyond, a node takes too long."""
SEED = 0


def pairs_of(requests: Sequence[Request]) -> list[tuple[int, int]]:
    """Pairs that live at the same time, at most one more than ``MOST_PAIRS``."""
    pairs: list[tuple[int, int]] = []
    order = sorted(range(len(requests)), key=lambda n: (requests[n].birth, n))
    for place, i in enumerate(order):
        for j in order[place + 1 :]:
            if requests[j].birth >= requests[i].death:
                break
            pairs.append((i, j))
            if len(pairs) > MOST_PAIRS:
                return pairs
    return pairs


def solve_mip(requests: Sequence[Request], known: Placement) -> Placement | None:
    """A smaller arena than a known one; None if none was found.

    Raises:
        RunError: PuLP or its solver is not installed.
    """
    pairs = pairs_of(requests)
    least = most_live_bytes(requests)
    if known.arena_bytes <= least or len(pairs) > MOST_PAIRS:
        return None
    unit = reduce(gcd, (r.bytes for r in requests))
    sizes = [r.bytes // unit for r in requests]
    most = known.arena_bytes // unit
    pulp, feasible = _pulp()
    problem = pulp.LpProblem("addresses", pulp.LpMinimize)
    arena = problem.add_variable("arena", least // unit, most - 1)
    offsets = [problem.add_variable(f"a{n}", 0, most - 1 - size) for n, size in enumerate(sizes)]
    problem += arena
    for offset, size in zip(offsets, sizes, strict=True):
        problem += offset + size <= arena
    for i, j in pairs:
        above = problem.add_variable(f"z{i}_{j}", cat="Binary")
        problem += offsets[i] + sizes[i] <= offsets[j] + most * above
        problem += offsets[j] + sizes[j] <= offsets[i] + most * (1 - above)
    solver = pulp.HiGHS(
        msg=False,
        threads=1,
        mip_max_nodes=NODES,
        random_seed=SEED,
        objective_target=float(least // unit),
    )
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    solver.callSolver(problem)
    if problem.solverModel.getInfo().primal_solution_status != feasible:
        return None
    # PuLP's own reading of results knows no status for the end at a limit of nodes.
    columns = problem.solverModel.getSolution().col_value
    found = _settled(requests, [columns[offset.index] for offset in offsets])
    return found if found.arena_bytes < known.arena_bytes else None


def _settled(requests: Sequence[Request], values: Sequence[float]) -> Placement:
    """Whole offsets in the order of fractional ones, each as low as those below it allow."""
    offsets = [0] * len(requests)
    placed: list[int] = []
    for n in sorted(range(len(requests)), key=lambda n: (values[n], n)):
        now = requests[n]
        offsets[n] = max(
            (
                offsets[m] + requests[m].bytes
                for m in placed
                if requests[m].birth < now.death and now.birth < requests[m].death
            ),
            default=0,
        )
        placed.append(n)
    return placement(requests, offsets, "mip")


def _pulp() -> tuple[Any, Any]:
    """PuLP, and HiGHS's word for a solution that is feasible."""
    try:
        feasible = import_module("highspy").SolutionStatus.kSolutionStatusFeasible
        return import_module("pulp"), int(feasible)
    except ImportError as error:
        raise RunError(
            f"planned addresses need an integer solver: pip install pulp highspy ({error})"
        ) from error
