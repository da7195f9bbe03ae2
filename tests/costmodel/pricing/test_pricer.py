"""Prices of kernels and collectives: positive, monotone, as the formulas say."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from generators.random_spaces import random_cluster, random_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costmodel.kernel_latency.device_latency import DeviceLatency
from shardwright.costmodel.kernel_latency.profile_table import Curve
from shardwright.costmodel.kernel_latency.roofline import kernel_seconds, peak_flops_per_s
from shardwright.costmodel.pricing.collectives import collective_seconds, message_seconds
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.overlap import exposed_over_product, slowed
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.datasets.catalogue.device import device, devices
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.report.work_items import Collective, Kernel

DEVICES = sorted(devices())
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "send")
SIZES = st.integers(0, 34)
CLUSTERS = (
    "1x8xA100-80GB",
    "16x8xH100-80GB",
    "4x8xV100-32GB",
    "8x8xH100-80GB@1x100G-ETH",
    "8x8xH100-80GB@8x400G-IB:oversub=4",
    "2x4xA100-PCIE-80GB",
)


def matmul(m: int, k: int, n: int, dtype: str = "fp16") -> Kernel:
    size = 4 if dtype == "fp32" else 2
    return Kernel("matmul", (m, k, n), dtype, 2 * m * k * n, size * (m * k + k * n + m * n))


def collective(kind: str, ranks: int, stride: int, payload: int) -> Collective:
    return Collective(kind, ranks, stride, payload, "bf16")  # type: ignore[arg-type]


@given(
    st.sampled_from(DEVICES),
    *[st.integers(1, 20000)] * 3,
    st.integers(0, 2),
    st.floats(1, 4),
)
@settings(max_examples=300)
def test_products_grow_with_every_side(
    name: str, m: int, k: int, n: int, side: int, factor: float
) -> None:
    sizes = [m, k, n]
    grown = [math.ceil(x * factor) if i == side else x for i, x in enumerate(sizes)]
    found = device(name)
    assert kernel_seconds(matmul(*grown), found) >= kernel_seconds(matmul(*sizes), found)


@given(st.sampled_from(DEVICES), *[st.integers(1, 20000)] * 3)
@settings(max_examples=300)
def test_no_product_beats_the_device(name: str, m: int, k: int, n: int) -> None:
    found, kernel = device(name), matmul(m, k, n)
    seconds = kernel_seconds(kernel, found)
    assert seconds * peak_flops_per_s(found, "fp16") * found.matmul_ceiling >= kernel.flops * 0.999
    assert seconds * found.memory_bandwidth_bytes_per_s >= kernel.traffic_bytes
    assert seconds >= found.kernel_launch_s


@pytest.mark.parametrize("name", ["A100-SXM-80GB", "H100-SXM-80GB", "B200-SXM-180GB"])
def test_large_products_come_near_the_ceiling(name: str) -> None:
    found, kernel = device(name), matmul(16384, 16384, 16384, "bf16")
    share = kernel.flops / kernel_seconds(kernel, found) / peak_flops_per_s(found, "bf16")
    assert 0.9 * found.matmul_ceiling <= share <= found.matmul_ceiling


def test_the_worked_number_of_the_roofline() -> None:
    """2048 x 12288 by 12288 x 4608 on A100 in bf16: 0.93 ms, 0.80 of peak."""
    kernel, a100 = matmul(2048, 12288, 4608, "bf16"), device("A100-80GB")
    seconds = kernel_seconds(kernel, a100)
    assert seconds == pytest.approx(0.93e-3, rel=0.02)
    assert kernel.flops / seconds / 312e12 == pytest.approx(0.80, abs=0.015)


@given(st.sampled_from(DEVICES), st.integers(1, 2**34), st.floats(1, 8))
@settings(max_examples=100)
def test_elementwise_kernels_grow_with_their_bytes(name: str, size: int, factor: float) -> None:
    small, large = (Kernel("add", (n,), "bf16", 0, 6 * n) for n in (size, math.ceil(size * factor)))
    assert kernel_seconds(small, device(name)) <= kernel_seconds(large, device(name))


@given(
    st.sampled_from(CLUSTERS),
    st.sampled_from(KINDS),
    st.integers(2, 64),
    st.sampled_from([1, 2, 4, 8, 16]),
    SIZES,
    st.floats(1, 16),
)
@settings(max_examples=300)
def test_collectives_grow_with_their_size(
    cluster: str, kind: str, ranks: int, stride: int, power: int, factor: float
) -> None:
    machine = Machine(parse_cluster(cluster).cluster)
    small, large = (
        collective_seconds(collective(kind, ranks, stride, math.ceil(2**power * f)), machine)
        for f in (1, factor)
    )
    assert 0 < small <= large


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_collectives_over_nodes_grow_with_their_group(cluster: str, kind: str, stride: int) -> None:
    """From whole nodes on, by whole factors."""
    spec = parse_cluster(cluster).cluster
    for payload in (2**10, 2**20, 2**24, 2**28):
        times = group_times(cluster, kind, stride, payload, spec.groups[0].devices_per_node)
        assert times == sorted(times), (payload, times)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_collectives_by_steps_grow_with_their_group(kind: str) -> None:
    """Where no group was measured, set-up grows with the steps of a ring."""
    for payload in (2**10, 2**20, 2**28):
        times = group_times("1x8xH100-PCIE-80GB", kind, 1, payload, 1)
        assert times == sorted(times)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", KINDS[:3])
def test_measured_groups_of_one_node_are_of_one_order(cluster: str, kind: str) -> None:
    """Measured curves may fall (NVSwitch sums in the switch, 8 V100 use more links than 2)."""
    for payload in (2**10, 2**20, 2**24, 2**28):
        times = group_times(cluster, kind, 1, payload, 1)[:3]
        assert all(b > 0.6 * a for a, b in itertools.pairwise(times)), (payload, times)


def group_times(cluster: str, kind: str, stride: int, payload: int, least_span: int) -> list[float]:
    """Seconds over 2, 4, 8, … ranks that span at least so many devices."""
    spec = parse_cluster(cluster).cluster
    machine = Machine(spec)
    return [
        collective_seconds(collective(kind, n, stride, payload), machine)
        for n in (2, 4, 8, 16, 32, 64)
        if least_span <= n * stride <= spec.device_count
    ]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_an_all_reduce_costs_no_less_than_either_half(cluster: str) -> None:
    machine = Machine(parse_cluster(cluster).cluster)
    for ranks, power in itertools.product((2, 4, 8), range(10, 30, 4)):
        whole = collective_seconds(collective("all_reduce", ranks, 1, 2**power), machine)
        for kind in ("all_gather", "reduce_scatter"):
            half = collective_seconds(collective(kind, ranks, 1, 2**power), machine)
            assert whole >= half * 0.999, (ranks, power, kind)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_collective_beats_its_links(cluster: str) -> None:
    machine = Machine(parse_cluster(cluster).cluster)
    fastest = max(level.bandwidth_bytes_per_s for level in machine.levels)
    for kind, ranks in itertools.product(KINDS[:3], (2, 4, 8)):
        seconds = collective_seconds(collective(kind, ranks, 1, 2**30), machine)
        wire = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks * 2**30
        assert wire / seconds <= fastest


def test_cores_over_a_network_scatter_what_they_have_summed() -> None:
    for cluster, factor in (("2x2xcpu", 1.0), ("2x2xA100-80GB", 0.5)):
        machine = Machine(parse_cluster(cluster).cluster)
        part, whole = (
            collective_seconds(collective(kind, 4, 1, 2**28), machine)
            for kind in ("reduce_scatter", "all_reduce")
        )
        assert part / whole == pytest.approx(factor, rel=0.15)


def test_the_worked_number_of_the_collectives() -> None:
    """All-gather of 256 MiB over 8 H100 of one node: 0.73 ms."""
    machine = Machine(parse_cluster("1x8xH100-80GB").cluster)
    seconds = collective_seconds(collective("all_gather", 8, 1, 2**28), machine)
    assert seconds == pytest.approx(0.73e-3, rel=0.02)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_messages_between_nodes_are_no_faster_than_inside(cluster: str) -> None:
    spec = parse_cluster(cluster).cluster
    machine = Machine(spec)
    for size in (2**20, 2**24, 2**28):
        near = message_seconds(size, machine.levels[0])
        if len(machine.levels) > 1:
            assert message_seconds(size, machine.levels[-1]) >= near
        assert near > 0


@given(st.integers(0, 10**6), st.floats(1, 100))
@settings(max_examples=100)
def test_faster_links_never_cost_more(seed: int, factor: float) -> None:
    source = random.Random(seed)
    spec = random_cluster(source, source.choice([2, 4, 6, 12]))
    number = source.randrange(len(spec.levels))
    level = spec.levels[number]
    assert level.bandwidth_bytes_per_s is not None
    better = replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * factor)
    levels = (*spec.levels[:number], better, *spec.levels[number + 1 :])
    faster = Machine(replace(spec, levels=levels))
    for kind in KINDS:
        ranks, stride = source.randint(2, spec.device_count), source.choice([1, 2, 3])
        item = collective(kind, ranks, stride, 2 ** source.randrange(8, 30))
        assert collective_seconds(item, faster) <= collective_seconds(item, Machine(spec)) + 1e-15


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 5), st.floats(1, 2))
@settings(max_examples=300)
def test_overlap_never_gets_cheaper_when_something_grows(
    a: float, b: float, more: float, factor: float
) -> None:
    assert exposed_over_product(a + more, b, 4) >= exposed_over_product(a, b, 4) - 1e-12
    together = b + exposed_over_product(a, b, 4)
    assert b + more + exposed_over_product(a, b + more, 4) >= together - 1e-12
    assert max(a, b) - 1e-12 <= together <= a + b + 1e-12
    assert slowed(a + more, b, factor) >= slowed(a, b, factor)
    assert slowed(a, b + more, factor) >= slowed(a, b, factor)
    assert a <= slowed(a, b, factor) <= factor * a + 1e-12


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-9, 10)), min_size=1, max_size=8))
@settings(max_examples=200)
def test_measured_curves_never_fall(points: list[tuple[int, float]]) -> None:
    curve = Curve(points)
    sizes = sorted({1, 2**31, *[max(1, s + d) for s, _ in points for d in (-1, 0, 1)]})
    times = [curve.at(size) for size in sizes]
    assert all(b >= a * (1 - 1e-12) for a, b in itertools.pairwise(times))


@given(st.integers(0, 200))
@settings(max_examples=60)
def test_every_price_is_finite_positive_and_remembered(seed: int) -> None:
    source = random.Random(seed)
    spec = random_cluster(source, 8)
    pricer = Pricer(Machine(spec, random_profile(source, spec)), stack("shardwright"))
    for _ in range(20):
        kernel = matmul(*[source.randint(1, 10**4) for _ in range(3)])
        price = pricer.kernel(kernel)
        assert math.isfinite(price.time_s)
        assert price.time_s > 0
        assert pricer.kernel(kernel) is price
        item = collective(source.choice(KINDS), source.randint(2, 8), 1, source.randint(1, 2**30))
        assert 0 < pricer.collective(item).time_s < math.inf


def test_a_job_waits_for_its_slowest_device() -> None:
    """Arithmetic has the device's own clock, memory has not; a core is what it is."""
    sizes, copy = (2048, 4096, 4096), Kernel("copy", (2**24,), "bf16", 0, 2**26)
    for name, slower in (("8xA100-80GB", 1.04), ("local:2", 1)):
        machine = Machine(parse_cluster(name).cluster)
        pricer, latency = Pricer(machine, stack("megatron")), DeviceLatency(machine.device, 3)
        for kernel, factor in ((matmul(*sizes), slower), (copy, 1)):
            found = latency.price(kernel)
            alone_s = kernel_seconds(kernel, machine.device) if found is None else found.time_s
            assert pricer.kernel(kernel).time_s == pytest.approx(factor * alone_s)
