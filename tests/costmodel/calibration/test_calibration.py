"""Calibrations: what each factor multiplies, and that fitting finds factors that are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shardwright.api.planning.uniform_plan import UniformStrategy, uniform_plan
from shardwright.api.problem.resolve import Inputs, resolve
from shardwright.api.validation.published_run import PlannedRun
from shardwright.api.validation.time_calibration import step_simulator
from shardwright.costmodel.calibration.fit import DOUBT, MAX_ROWS, MeasuredStep, fit_calibration
from shardwright.costmodel.calibration.interval import OWN_SPREAD, half_width, student_quantile
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.simulation.simulator import Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.search.build import shape_bounds
from shardwright.planner.solve.engine import make_evaluator
from shardwright.planner.solve.solve import solve
from shardwright.spec.cluster.calibration import (
    FACTOR_NAMES,
    MEANINGS,
    SHIPPED,
    Factors,
    unfitted,
)
from shardwright.spec.codec import canonical_json
from shardwright.spec.report.work_items import Collective, Kernel, streamed

MODEL = {"family": "gpt2", "layers": 24, "hidden": 2048, "heads": 16, "vocab": 51200}
LAYOUTS: tuple[dict[str, int | str], ...] = (
    {"tp": 1, "micro_batch": 1},
    {"tp": 2, "micro_batch": 2},
    {"tp": 4, "micro_batch": 4},
    {"tp": 8, "micro_batch": 1},
    {"tp": 1, "pp": 2, "micro_batch": 4},
    {"tp": 2, "pp": 4, "micro_batch": 1},
    {"tp": 1, "micro_batch": 8, "recompute": "full"},
    {"tp": 4, "pp": 2, "micro_batch": 2, "recompute": "full"},
    {"tp": 1, "micro_batch": 16, "shard": "zero1"},
    {"tp": 8, "pp": 2, "micro_batch": 8},
)
TRUE = Factors(
    matmul=1.15, attention=1.0, elementwise=1.5, inner_links=1.3, outer_links=1.8, host=0.7
)


def simulator(layout: dict[str, int | str]) -> Callable[[Factors], float]:
    asked = resolve(
        Inputs(
            model=MODEL, cluster="2x8xA100-80GB", global_batch=256, seq_len=1024,
            stack="megatron", calibration="none",
        )
    )  # fmt: skip
    plan, _ = uniform_plan(asked, UniformStrategy(**layout))  # type: ignore[arg-type]
    return step_simulator(PlannedRun(plan=plan, problem=asked, assumed=()))


@pytest.fixture(scope="module")
def steps() -> list[Callable[[Factors], float]]:
    return [simulator(layout) for layout in LAYOUTS]


def measured(steps: list[Callable[[Factors], float]], spread: float = 0.0) -> list[MeasuredStep]:
    source = random.Random(7)
    return [
        MeasuredStep(f"row {n}", step(TRUE) * source.uniform(1 - spread, 1 + spread), step)
        for n, step in enumerate(steps)
    ]


def test_every_factor_has_a_meaning_and_is_one_of_six() -> None:
    assert set(MEANINGS) == set(FACTOR_NAMES)
    assert len(FACTOR_NAMES) == 6


@pytest.mark.parametrize(
    ("factor", "item"),
    [
        ("matmul", Kernel("matmul", (2048, 4096, 4096), "bf16", 2**36, 2**26)),
        ("attention", Kernel("flash_attention", (4, 16, 16, 2048, 64), "bf16", 2**35, 2**26)),
        ("elementwise", streamed("add", 2**24, 2**26, "bf16")),
        ("elementwise", streamed("fused_adamw", 2**24, 2**28, "fp32")),
        ("inner_links", Collective("all_reduce", 8, 1, 2**26, "bf16")),
        ("outer_links", Collective("all_reduce", 2, 8, 2**26, "bf16")),
        ("outer_links", Collective("all_gather", 16, 1, 2**26, "bf16")),
    ],
)
def test_a_factor_multiplies_its_own_kind_alone(factor: str, item: Kernel | Collective) -> None:
    cluster = parse_cluster("2x8xA100-80GB").cluster

    def seconds(factors: Factors) -> float:
        pricer = Pricer(Machine(cluster, unfitted(factors)), stack("megatron"))
        price = pricer.kernel(item) if isinstance(item, Kernel) else pricer.collective(item)
        return price.time_s

    for name in FACTOR_NAMES:
        ratio = seconds(replace(SHIPPED, **{name: 2.0})) / seconds(SHIPPED)
        assert ratio == pytest.approx(2.0 if name == factor else 1.0)


def test_the_host_factor_multiplies_what_the_stack_says() -> None:
    cluster = parse_cluster("8xA100-80GB").cluster
    doubled = Pricer(Machine(cluster, unfitted(Factors(host=2.0))), stack("megatron"))
    shipped = Pricer(Machine(cluster), stack("megatron"))
    assert doubled.launch_s == 2 * shipped.launch_s > 0
    assert doubled.step_s == 2 * shipped.step_s > 0


def test_factors_of_one_change_nothing() -> None:
    asked = resolve(Inputs(model="gpt2", cluster="8xH100", global_batch=64, seq_len=1024))
    plan, _ = uniform_plan(asked, UniformStrategy(tp=2))
    lowering, times = Lowering(plan.model, plan.workload, asked.stack), []
    for known in (None, unfitted(SHIPPED)):
        found = Simulator(lowering, Pricer(Machine(plan.cluster, known), asked.stack)).run(plan)
        assert found is not None
        times.append(found.step_time_s)
    assert times[0] == times[1]


def test_known_factors_are_found_from_ten_steps(
    steps: list[Callable[[Factors], float]],
) -> None:
    found = fit_calibration("known", "A100-SXM-80GB", "megatron", measured(steps))
    assert found.shipped_error > 0.1
    assert found.fitted_error < 0.02
    assert found.left_out_error < 0.05
    for name in ("matmul", "elementwise", "host"):
        assert getattr(found.factors, name) == pytest.approx(getattr(TRUE, name), rel=0.15)


def test_a_row_that_is_three_times_too_long_does_not_decide(
    steps: list[Callable[[Factors], float]],
) -> None:
    rows = measured(steps, 0.02)
    wrong = [rows[0]._replace(step_s=3 * rows[0].step_s), *rows[1:]]
    found = fit_calibration("wrong", "A100-SXM-80GB", "megatron", wrong)
    for row in rows[1:]:
        assert row.simulate(found.factors) == pytest.approx(row.step_s, rel=0.12)


def test_equal_rows_give_equal_bytes(steps: list[Callable[[Factors], float]]) -> None:
    rows = measured(steps, 0.05)[:4]
    one, other = (fit_calibration("same", "A100", "megatron", rows) for _ in range(2))
    assert canonical_json(one) == canonical_json(other)


def test_one_row_moves_the_step_to_it_and_leaves_a_wider_interval_than_a_run_has(
    steps: list[Callable[[Factors], float]],
) -> None:
    row = MeasuredStep("one", 1.3 * steps[6](SHIPPED), steps[6])
    found = fit_calibration("one", "A100", "megatron", [row])
    assert found.fitted_error < 0.1 < found.shipped_error
    assert found.half_width > 1.5 * OWN_SPREAD


@pytest.mark.parametrize(("freedom", "t"), [(3, 1.6377), (5, 1.4759), (10, 1.3722), (30, 1.3104)])
def test_students_quantile_is_that_of_the_tables(freedom: float, t: float) -> None:
    assert student_quantile(freedom) == pytest.approx(t, rel=3e-4)


def test_the_worked_number_of_the_interval() -> None:
    found = half_width(np.full(10, 0.05), np.ones(10), np.full(10, 0.3))
    assert found == pytest.approx(0.0935, abs=5e-4)


Drawn = Callable[[np.random.Generator, int], NDArray[np.float64]]


def normal(source: np.random.Generator, rows: int) -> NDArray[np.float64]:
    return 0.06 * source.standard_normal(rows)


def long_tailed(source: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Laplace's distribution of the same standard deviation."""
    return source.laplace(0, 0.06 / math.sqrt(2), rows)


def small(source: np.random.Generator, rows: int) -> NDArray[np.float64]:
    return 0.04 * source.standard_normal(rows)


@pytest.mark.parametrize("spread", [normal, long_tailed, small])
def test_intervals_hold_what_they_promise_of_rows_that_were_not_fitted(spread: Drawn) -> None:
    """Steps of six kinds of work in drawn shares, drawn factors, drawn errors; 60 fits."""
    rows, held, widths = MAX_ROWS, [], []
    for seed in range(60):
        source = np.random.default_rng(seed)
        shares = source.dirichlet([4, 2, 2, 1, 1, 0.5], rows + 20)
        true = np.exp(source.standard_normal(6) * np.array([DOUBT[k] for k in FACTOR_NAMES]))
        seconds = shares @ true * np.exp(spread(source, rows + 20))

        def step(share: NDArray[np.float64]) -> Callable[[Factors], float]:
            return lambda f: float(share @ [getattr(f, name) for name in FACTOR_NAMES])

        every = [
            MeasuredStep(str(n), float(s), step(share))
            for n, (s, share) in enumerate(zip(seconds, shares, strict=True))
        ]
        found = fit_calibration("drawn", "A100", "megatron", every[:rows])
        for row in every[rows:]:
            off = abs(math.log(row.step_s / row.simulate(found.factors)))
            held.append(off <= math.log1p(found.half_width))
        widths.append(found.half_width)
    assert 0.7 <= np.mean(held) <= 0.9
    assert max(widths) < 4 * np.median(widths)


@pytest.mark.parametrize("count", [0, MAX_ROWS + 1])
def test_too_few_and_too_many_rows_are_refused(count: int) -> None:
    row = MeasuredStep("row", 1.0, lambda factors: 1.0)
    with pytest.raises(ValueError, match="rows"):
        fit_calibration("none", "A100", "megatron", [row] * count)


@pytest.mark.parametrize(("tp", "factor"), [(3, "outer_links"), (8, "inner_links")])
def test_the_factor_is_of_the_links_that_a_collective_crosses(tp: int, factor: str) -> None:
    """Groups of three cross the edge of a node of eight somewhere."""
    cluster = parse_cluster("3x8xA100-80GB").cluster
    item = Collective("all_reduce", tp, 1, 2**26, "bf16")

    def seconds(factors: Factors) -> float:
        pricer = Pricer(Machine(cluster, unfitted(factors)), stack("megatron"))
        return pricer.collective(item).time_s

    doubled = seconds(replace(SHIPPED, **{factor: 2.0}))
    assert doubled == pytest.approx(2 * seconds(SHIPPED))


def test_the_floor_of_a_space_holds_where_products_are_faster() -> None:
    asked = resolve(
        Inputs(model="gpt2", cluster="8xH100", global_batch=64, seq_len=1024, calibration="none")
    )
    faster = unfitted(Factors(matmul=0.2, attention=0.2, elementwise=0.2, host=0.2))
    machine = Machine(asked.cluster, faster)
    problem = replace(asked, measured=faster, machine=machine)
    found = solve(problem)
    floor = shape_bounds(make_evaluator(problem)).quick.compute.floor()
    assert 0 < floor <= found.prediction.step_time_s
