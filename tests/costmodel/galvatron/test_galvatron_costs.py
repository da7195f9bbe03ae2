"""Galvatron's costs: its printed plans cost what it printed, and its rules are as it has them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published.galvatron_cases import llama_job, strategy

from shardwright.costmodel.galvatron.breakdown import breakdown, stage_bytes
from shardwright.costmodel.galvatron.embedding_head import embedding_head_seconds
from shardwright.costmodel.galvatron.job import MB, usable_mb
from shardwright.costmodel.galvatron.layer_memory import layer_memory
from shardwright.costmodel.galvatron.layer_time import layer_time
from shardwright.costmodel.galvatron.pipeline import StageTime, step_seconds
from shardwright.costmodel.galvatron.plan_cost import GalvatronPlan, plan_cost
from shardwright.costmodel.galvatron.rates import fitted
from shardwright.costmodel.galvatron.reshard import reshard_seconds

Layers = tuple[tuple[int, str], ...]
PRINTED: list[tuple[int, int, Layers, str, float, float, int]] = [
    (16, 2, ((32, "1-8*-1-c"),), "1-2*-4f-sp", 1.601406, 9.991219, 16353),
    (24, 1, ((30, "1-1-8f-c"), (2, "1-1-8f")), "1-4*-2f-sp", 1.171556, 13.657047, 24523),
    (36, 1, ((20, "1-1-8f-c"), (12, "1-1-8f")), "1-2*-4f-sp", 1.086046, 14.732339, 36757),
    # Coarse mode: embedding and head are split as the layers.
    (24, 1, ((32, "1-1-8f-c"),), "1-1-8f", 16 / 13.460554, 13.460554, 22967),
    (36, 1, ((32, "1-1-8-c"),), "1-1-8", 16 / 14.315405, 14.315405, 36723),
]


def plan(layers: Layers, ends: str, microbatches: int) -> GalvatronPlan:
    found = tuple(strategy(text) for count, text in layers for _ in range(count))
    stages = found[0].pp
    division = (len(found) // stages,) * stages
    return GalvatronPlan(
        layers=found, ends=strategy(ends), microbatches=microbatches, division=division
    )


@pytest.mark.parametrize(("gib", "m", "layers", "ends", "step_s", "rate", "used_mb"), PRINTED)
def test_printed_plans_cost_what_was_printed(
    gib: int, m: int, layers: Layers, ends: str, step_s: float, rate: float, used_mb: int
) -> None:
    price = plan_cost(llama_job(16), plan(layers, ends, m))
    assert 16 / price.step_s == pytest.approx(rate, abs=1e-6)
    assert price.step_s == pytest.approx(step_s, abs=1e-6)
    withheld = gib * 1024 - usable_mb(gib * 1024)
    assert price.used_bytes[0] + withheld * MB == used_mb * MB
    assert price.reshard_s == 0


def test_a_fifth_is_withheld_above_20_gb() -> None:
    assert [usable_mb(gib * 1024) for gib in (16, 20, 21, 24)] == [16384, 20480, 17204, 19661]
    assert usable_mb(20 * 1024 + 1023) == 20 * 1024 + 1023


def test_a_change_of_degree_costs_its_hundredfold() -> None:
    """76 ms from 4 to 8 ranks at 16 samples in two micro-batches, once a micro-batch."""
    job = llama_job(16)
    assert reshard_seconds(job, 0, 4, 8, 1, 2) == pytest.approx(0.0762, abs=1e-4)
    assert reshard_seconds(job, 0, 8, 4, 1, 2) == reshard_seconds(job, 0, 4, 8, 1, 2)
    assert reshard_seconds(job, 0, 4, 4, 1, 2) == 0
    mixed = plan(((6, "1-4*-2f-c"), (26, "1-8*-1-c")), "1-2*-4f-sp", 2)
    price = plan_cost(job, mixed)
    assert price.reshard_s == pytest.approx(2 * reshard_seconds(job, 0, 4, 8, 1, 2), rel=1e-9)
    assert 16 / (price.step_s - price.reshard_s) > 10.2


def test_a_message_of_a_measured_size_is_read_and_another_is_on_the_line() -> None:
    job = llama_job(16)
    rates = job.rates
    assert rates.gather_ms(4, 64.0) == pytest.approx(0.5848 / 2, rel=1e-12)
    assert rates.exchange_ms(2, 16.0) == pytest.approx(0.1203, rel=1e-12)
    line = fitted([(n, t / 2) for n, t in job.profile.machine.allreduce_ms[4]])
    assert rates.gather_ms(4, 48.0) == pytest.approx(line.at(48.0))
    assert line == pytest.approx((0.00348255, 0.06227859), abs=1e-7)
    assert job.forward[0] == pytest.approx((3.8590169, 0.83298514), abs=1e-6)


def test_reduction_beside_backward_slows_both() -> None:
    job = llama_job(64)
    k = job.profile.machine.slowdown
    for text in ("1-1-8", "1-2*-4", "1-2*-4-sp"):
        found, one = layer_time(job, 0, strategy(text), 1), strategy(text)
        ranks, weights = one.shard_ranks, 778.2236328125 / one.tp
        bandwidth = job.profile.machine.allreduce[ranks, int(one.tp == 1)]
        reduce_s = (ranks - 1) / ranks * weights / bandwidth * 1e-3
        backward_s = found.parts[0] * 2 / 3
        slowed = max(reduce_s, backward_s) + (k - 1) * min(reduce_s, backward_s)
        assert found.reduce_s == pytest.approx(slowed - backward_s, rel=1e-9)


def test_memory_follows_recomputation_sharding_and_stage() -> None:
    job = llama_job(16)
    states = 4 * 778.2236328125
    kept = layer_memory(job, 0, strategy("4-1-2"), 4, 1)
    assert kept.states_mb == pytest.approx(states * (6 / 8 * (1 / 2 + 0.003) + 2 / 8))
    assert kept.activation_mb == pytest.approx(514.5634765625 * 3 * 2)
    again = layer_memory(job, 0, strategy("1-4*-2f-c"), 1, 0)
    assert again.states_mb == pytest.approx(states / 4 * (1 / 2 + 0.003))
    assert again.activation_mb == 32.0 * 8 / 4
    assert again.whole_mb == math.ceil(again.states_mb + again.activation_mb)


def test_the_ends_are_split_over_first_and_last_stage() -> None:
    job = llama_job(16)
    alone = sum(embedding_head_seconds(job, strategy("1-1-8f"), 1))
    found = embedding_head_seconds(job, strategy("4-1-2"), 8)
    assert len(found) == 4
    assert found[1] == found[2] == 0
    assert found[0] == found[3] > 0
    assert alone > 3 * job.ends_forward.at(2) * 1e-3


seconds = st.floats(0.01, 10)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=8), st.integers(0, 20))
@settings(max_examples=200)
def test_the_step_is_the_pipeline_formula(stages: list[tuple[float, float]], more: int) -> None:
    plain = [s for s, _ in stages]
    p = len(stages)
    m = p + more
    third = max((min(p, m) - 1) * plain[0], sum(plain[1:]))
    work = max(sum(plain) + (m - 1) * plain[-1], third + plain[0] * (m + 1 - p))
    shown = max(s + r - sum(plain[: n + 1]) for n, (s, r) in enumerate(stages))
    found = step_seconds([StageTime(s, r) for s, r in stages], m)
    assert found == pytest.approx(work + max(0.0, shown))


@pytest.mark.parametrize(
    ("layers", "ends", "m"),
    [
        (((20, "1-1-8f-c"), (12, "1-1-8f")), "1-2*-4f-sp", 1),
        (((6, "1-4*-2f-c"), (26, "1-8*-1-c")), "1-2*-4", 2),
        (((16, "2-2*-2-c"), (16, "2-4*-1-sp")), "2-2*-2f", 4),
        (((8, "4-1-2-c"), (24, "4-2*-1")), "4-1-2f", 8),
    ],
)
def test_accounts_add_up(layers: Layers, ends: str, m: int) -> None:
    job, found = llama_job(16), plan(layers, ends, m)
    price = plan_cost(job, found)
    assert sum(breakdown(job, found, price).values()) == pytest.approx(price.step_s)
    assert min(breakdown(job, found, price).values()) >= 0
    parts = stage_bytes(job, found, price, 100)
    assert len(parts) == len(found.division)
    for part in parts:
        assert sum(part.by.values()) == part.reserved_bytes == part.used_bytes + 100 * MB
        assert min(part.by.values()) >= 0
        assert 100 * MB <= part.by["fragmentation"] <= (102 + 32) * MB
