"""The largest size that fits: the bisection itself, and against every plan of small spaces."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from generators.catalogue_problems import problem, space_of
from hypothesis import given
from hypothesis import strategies as st
from oracles.brute_force import Restriction, Space, all_plans, simulator_of
from published.planning import RULE

from shardwright.api.problem.pins import resolve_pins
from shardwright.planner.search.largest_size import finer_steps, largest_fitting
from shardwright.planner.solve.options import SolveOptions
from shardwright.planner.solve.problem import Problem
from shardwright.planner.solve.solve import solve
from shardwright.spec.errors import InfeasibleError
from shardwright.spec.report.report import Largest

SMALL = {"layers": 2, "hidden": 512, "heads": 4, "vocab": 4096}
PINS = ("recompute=none", "cp=1", "sp=none", "schedule=1f1b", "vpp=1")
GIB = 2**30


@given(
    largest=st.integers(0, 400),
    grain=st.integers(1, 9),
    whole=st.sampled_from([1, 2, 6, 8, 12, 64]),
    most=st.sampled_from([2**40, 350, 37]),
    begin=st.integers(0, 500),
)
def test_the_largest_of_sizes_that_fit_up_to_one(
    largest: int, grain: int, whole: int, most: int, begin: int
) -> None:
    found = largest_fitting(lambda size: size <= largest, finer_steps(whole, grain), most, begin)
    size = min(largest, most) // grain * grain
    assert found.size == size
    assert found.beyond == (size + grain if size + grain <= most else None)
    assert all(fits == (n <= largest) for n, fits in found.tried.items())
    assert len(found.tried) <= 40


@given(fitting=st.sets(st.integers(1, 120)), whole=st.sampled_from([1, 4, 12]))
def test_whatever_fits_the_answer_fits_and_the_next_does_not(fitting: set[int], whole: int) -> None:
    found = largest_fitting(lambda size: size in fitting, finer_steps(whole, 1), 128)
    assert found.size == 0 or found.size in fitting
    assert found.beyond is None or found.beyond not in fitting
    assert {n for n, fits in found.tried.items() if fits} == set(found.tried) & fitting


def test_steps_are_multiples_of_the_finer_ones() -> None:
    for whole, grain in itertools.product((1, 7, 12, 96, 25000), (1, 3, 1024)):
        steps = finer_steps(whole, grain)
        assert (steps[0], steps[-1]) == (whole * grain, grain)
        assert all(a % b == 0 for a, b in itertools.pairwise(steps))


def largest(asked: Problem) -> Largest:
    solution = solve(asked, SolveOptions(pins=resolve_pins(PINS, asked), top=0))
    found = solution.search.largest
    assert found is not None
    workload = solution.plan.workload
    assert found.size in (workload.global_batch, workload.seq_len)
    assert solution.search.objective.value == found.size
    assert solution.prediction.feasible
    return found


def asked_of(cluster: str, memory_gib: float, objective: str, **sizes: int) -> Problem:
    return problem(SMALL, cluster, **sizes, memory_gib=memory_gib, objective=objective)  # type: ignore[arg-type]


def restricted(asked: Problem) -> Space:
    """The pins, and leave for micro-batches of any size, as the oracle says them."""
    kept = {"recompute": ("none",), "cp": (1,), "sp": ("none",), "schedule": ("1f1b",),
            "vpp": (1,), "micro_batch": tuple(range(1, 2000))}  # fmt: skip
    rules = tuple(Restriction(axis=a, allowed=v) for a, v in kept.items())
    return replace(space_of(asked), restrictions=rules)


def fits_by_force(space: Space, single_fill: bool) -> bool:
    """Whether any plan at all fits, of those that fill their pipeline once if that is asked."""
    simulator = simulator_of(space)
    for plan, _ in all_plans(space):
        program = plan.program
        if single_fill and program.schedule.microbatches > len(program.stages):
            continue
        simulation = simulator.run(plan)
        assert simulation is not None
        if all(RULE.excess_bytes(row) <= 0 for row in simulation.memory):
            return True
    return False


@pytest.mark.parametrize(
    ("cluster", "memory_gib", "seq_len"),
    [("1xA100-80GB", 3.0, 4096), ("2xA100-80GB", 2.0, 4096), ("2xH100-80GB", 4.0, 16384)],
)
@pytest.mark.timeout(240)
def test_the_largest_batch_is_that_of_the_brute_force(
    cluster: str, memory_gib: float, seq_len: int
) -> None:
    asked = asked_of(cluster, memory_gib, "largest-batch", batch=1, seq_len=seq_len)
    found = largest(asked)
    assert found.limited_by == "memory"
    assert found.beyond == found.size + 1
    assert 3 < found.size < 200
    beyond = [found.size + n for n in (1, 2, 3)]
    for batch, fits in [(found.size, True), *((n, False) for n in beyond)]:
        space = restricted(asked.sized(global_batch=batch))
        assert fits_by_force(space, single_fill=True) == fits, batch


@pytest.mark.timeout(240)
def test_the_longest_sequence_is_that_of_the_brute_force() -> None:
    asked = asked_of("2xA100-80GB", 2.0, "largest-sequence:256", batch=4, seq_len=256)
    found = largest(asked)
    assert found.size % 256 == 0
    assert found.beyond == found.size + 256
    for tokens, fits in ((found.size, True), (found.size + 256, False), (found.size + 512, False)):
        assert fits_by_force(restricted(asked.sized(seq_len=tokens)), single_fill=False) == fits


@pytest.mark.timeout(240)
@pytest.mark.parametrize("objective", ["largest-batch", "largest-sequence:512"])
def test_more_memory_never_lowers_the_largest(objective: str) -> None:
    sizes = [
        largest(asked_of("2xA100-80GB", gib, objective, batch=4, seq_len=2048)).size
        for gib in (1.5, 2.0, 2.75, 4.5)
    ]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 2 * sizes[0] > 0


@pytest.mark.evidence
def test_where_the_model_ends_so_does_the_sequence() -> None:
    asked = problem("gpt2", "1xA100-80GB", 8, 256, objective="largest-sequence:100")
    solution = solve(asked, SolveOptions(top=0))
    found = solution.search.largest
    assert found is not None
    assert (found.size, found.beyond, found.limited_by) == (1000, None, "model")
    assert solution.search.objective.bound == 1000


def test_not_even_the_grain_fits() -> None:
    asked = problem("llama-3-70b", "1xA100-80GB", 1, 1024, objective="largest-sequence")
    with pytest.raises(InfeasibleError, match=r"hbm of stage .* devices with .* or \d+ nodes"):
        solve(asked)


def test_a_deadline_leaves_a_size_that_fits() -> None:
    asked = problem("llama-3-8b", "8xH100-80GB", 1, 4096, objective="largest-batch")
    solution = solve(asked, SolveOptions(deadline_s=1.0))
    found = solution.search.largest
    assert found is not None
    assert found.size >= 1
    assert solution.prediction.feasible
    assert solution.plan.workload.global_batch == found.size
