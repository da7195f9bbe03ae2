"""Prices from measured kernels: monotone, as measured, near their neighbours, honestly named."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costmodel.kernel_latency.grid import MOST_POINTS, Grid
from shardwright.costmodel.kernel_latency.profile_table import KernelTable
from shardwright.spec.cluster.machine_profile import KernelRow, MachineProfile
from shardwright.spec.errors import InputError
from shardwright.spec.report.work_items import Kernel

POWERS = {"matmul": (1, 1, 1), "scores": (1, 2, 1), "mix": (1, 2, 1), "flash": (1, 2, 1)}
SIZES = st.integers(1, 5000)
CLOSE = 1e-9


def kernel(form: str, sizes: tuple[int, ...]) -> Kernel:
    """A kernel by the sizes that its price depends on."""
    a, b, c = sizes
    if form == "matmul":
        return Kernel("matmul", sizes, "fp32", 2 * a * b * c, 4 * (a * b + b * c + a * c))
    if form == "flash":
        return Kernel("flash_attention", (1, a, a, b, c), "fp32", 4 * a * b * b * c, 16 * a * b * c)
    shape = (a, b, c, b) if form == "scores" else (a, b, b, c)
    return Kernel("batched_matmul", shape, "fp32", 2 * a * b * b * c, 4 * a * b * (2 * c + b))


def row(of: Kernel, time_s: float) -> KernelRow:
    return KernelRow(**of._asdict(), time_s=time_s)


def table(rows: list[KernelRow]) -> KernelTable:
    profile = MachineProfile(
        fingerprint="made up",
        machine={},
        ranks=1,
        measured_at="never",
        duration_s=1.0,
        kernels=tuple(rows),
        kernel_slowdown=1.5,
    )
    return KernelTable(profile)


def time_s(found: KernelTable, item: Kernel) -> float:
    price = found.price(item)
    assert price is not None
    assert price.source == "measured"
    return price.time_s / 1.5


@st.composite
def measured(draw: st.DrawFn) -> tuple[str, dict[tuple[int, ...], float]]:
    """A form and random seconds on a grid with holes; batched sizes avoid seq = dim."""
    form = draw(st.sampled_from(sorted(POWERS)))
    axes = [draw(st.lists(SIZES, min_size=1, max_size=4, unique=True)) for _ in range(3)]
    points = [p for p in itertools.product(*axes) if form in ("matmul", "flash") or p[1] != p[2]]
    if not points:
        points = [(3, 5, 7)]
    kept = draw(st.lists(st.sampled_from(points), min_size=1, unique=True))
    times = st.floats(1e-7, 10)
    return form, {point: draw(times) for point in kept}


@given(measured(), st.tuples(SIZES, SIZES, SIZES), st.integers(0, 2), st.floats(1, 30))
@settings(max_examples=300)
def test_a_larger_size_never_takes_less_time(
    found: tuple[str, dict[tuple[int, ...], float]],
    sizes: tuple[int, ...],
    side: int,
    factor: float,
) -> None:
    form, times = found
    grown = tuple(math.ceil(x * factor) if i == side else x for i, x in enumerate(sizes))
    if form in ("scores", "mix") and any(b == c for _, b, c in (sizes, grown)):
        return  # such a product is of both forms
    prices = table([row(kernel(form, p), t) for p, t in times.items()])
    small, large = (time_s(prices, kernel(form, x)) for x in (sizes, grown))
    assert large >= small * (1 - CLOSE)
    for point in times:
        for other in times:
            if all(x <= y for x, y in zip(point, other, strict=True)):
                pair = [time_s(prices, kernel(form, x)) for x in (point, other)]
                assert pair[1] >= pair[0] * (1 - CLOSE)


def filled(form: str, times: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """Seconds at every grid point by the rule's own words: nearest rate, then the maximum."""

    def work(point: tuple[int, ...]) -> float:
        return math.prod(x**p for x, p in zip(point, POWERS[form], strict=True))

    def near(point: tuple[int, ...]) -> float:
        def distance(other: tuple[int, ...]) -> float:
            ratios = (math.log(x / y) for x, y in zip(point, other, strict=True))
            return math.sqrt(sum(r * r for r in ratios))

        least = min(map(distance, times))
        rivals = [p for p in times if distance(p) <= least + 1e-8]
        return max(times[p] * work(point) / work(p) for p in rivals)

    axes = [sorted({p[i] for p in times}) for i in range(3)]
    raw = {p: near(p) for p in itertools.product(*axes)}
    return {
        p: max(t for q, t in raw.items() if all(x <= y for x, y in zip(q, p, strict=True)))
        for p in raw
    }


@given(measured())
@settings(max_examples=150)
def test_measured_sizes_keep_their_time_up_to_the_maximum_rule(
    found: tuple[str, dict[tuple[int, ...], float]],
) -> None:
    form, times = found
    prices = table([row(kernel(form, p), t) for p, t in times.items()])
    expected = filled(form, times)
    for point in times:
        assert time_s(prices, kernel(form, point)) == pytest.approx(expected[point], rel=1e-6)
        assert expected[point] >= times[point] * (1 - CLOSE)


@given(measured(), st.tuples(SIZES, SIZES, SIZES))
@settings(max_examples=200)
def test_a_rate_lies_between_those_of_its_neighbours(
    found: tuple[str, dict[tuple[int, ...], float]], sizes: tuple[int, ...]
) -> None:
    form, times = found
    if form in ("scores", "mix") and sizes[1] == sizes[2]:
        return
    prices = table([row(kernel(form, p), t) for p, t in times.items()])
    neighbours = []
    for i, size in enumerate(sizes):
        axis = sorted({p[i] for p in times})
        below, above = [x for x in axis if x <= size], [x for x in axis if x >= size]
        neighbours.append({below[-1] if below else axis[0], above[0] if above else axis[-1]})
    corners = filled(form, times)
    rates = [kernel(form, p).flops / corners[p] for p in itertools.product(*neighbours)]
    rate = kernel(form, sizes).flops / time_s(prices, kernel(form, sizes))
    assert min(rates) * (1 - 1e-6) <= rate <= max(rates) * (1 + 1e-6)


def test_a_missing_corner_takes_its_nearest_neighbours_rate() -> None:
    """A sweep that ended early: the slow far corner says nothing of the hole beside the fast."""
    rates = {(1, 1, 1): 1e6, (1024, 1024, 512): 1e10, (1024, 512, 1024): 2e10}
    grid = Grid(rates, (1, 1, 1))
    assert grid.rate((1024, 1024, 1024)) == pytest.approx(1e10)
    assert grid.rate((1, 1, 1)) == pytest.approx(1e6)


def test_batched_products_of_one_pattern_make_a_full_grid() -> None:
    """Rates of scores and mix differ and neither drags the other's along."""
    rows = []
    for batch, seq, dim in itertools.product((4, 16), (128, 512), (32, 64)):
        for form, rate in (("scores", 1e10), ("mix", 3e10)):
            item = kernel(form, (batch, seq, dim))
            rows.append(row(item, item.flops / rate))
    prices = table(rows)
    for sizes in ((8, 256, 48), (16, 512, 64), (2, 1024, 128)):
        for form, rate in (("scores", 1e10), ("mix", 3e10)):
            item = kernel(form, sizes)
            assert item.flops / time_s(prices, item) == pytest.approx(rate)
    assert prices.price(Kernel("batched_matmul", (2, 3, 4, 5), "fp32", 240, 400)) is None


def test_a_product_of_both_patterns_is_priced() -> None:
    cube = Kernel("batched_matmul", (4, 64, 64, 64), "fp32", 2 * 4 * 64**3, 4 * 3 * 4 * 64**2)
    assert time_s(table([row(cube, 1e-3)]), cube) == pytest.approx(1e-3)
    mix = kernel("mix", (4, 128, 64))
    assert time_s(table([row(mix, 2e-3)]), cube) == pytest.approx(2e-3 / 4)


def elementwise(op: str, size: int, dtype: str = "fp32") -> Kernel:
    return Kernel(op, (size,), dtype, 0, 8 * size)


def test_an_operation_that_was_not_measured_is_not_called_measured() -> None:
    prices = table([row(elementwise("add", n), 1e-9 * n) for n in (100, 10_000)])
    own, other = (prices.price(elementwise(op, 1000)) for op in ("add", "cumsum"))
    assert own is not None
    assert other is not None
    assert (own.source, other.source) == ("measured", "analytic")
    assert other.time_s == own.time_s == pytest.approx(1.5e-6)
    assert prices.price(elementwise("add", 1000, "bf16")) is None


def test_elementwise_times_never_fall_at_measured_sizes() -> None:
    prices = table([row(elementwise("mul", n), t) for n, t in ((10, 5.0), (100, 1.0), (50, 2.0))])
    assert [time_s(prices, elementwise("mul", n)) for n in (10, 50, 100)] == pytest.approx(
        [5.0] * 3
    )


def test_sizes_that_are_no_grid_are_refused() -> None:
    rates: dict[Any, float] = {(n, n, n): 1.0 for n in range(1, 20)}
    assert MOST_POINTS < 19**3
    with pytest.raises(InputError, match="6859 grid points"):
        Grid(rates, (1, 1, 1))
