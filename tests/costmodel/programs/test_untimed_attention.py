"""Flash attention of devices that nobody timed, by the learner that the table names."""

from __future__ import annotations

import json

import pytest

from shardwright.costmodel.kernel_latency.attention_grid import learned_attention_grid
from shardwright.costmodel.kernel_latency.learned_prices import (
    ARCHITECTURES,
    TABLE,
    learner_of,
)
from shardwright.costmodel.kernel_latency.predict import predict
from shardwright.costmodel.kernel_latency.stragglers import straggler_seconds
from shardwright.costmodel.pricing.kernel_pricer import KernelPricer
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.programs.leaf_trees import read_leaf_trees, untimed_attention_grid
from shardwright.datasets.catalogue.device import device, devices
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.report.work_items import Kernel


def _attention(batch: int, seq: int) -> Kernel:
    flops = 4 * batch * 32 * seq**2 * 128
    return Kernel("flash_attention", (batch, 32, 8, seq, 128), "fp16", flops, 1)


def test_the_table_names_the_learner_that_errs_least() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    unseen = [table["errors"][f"attention, {name}"] for name in ("Hopper", "Blackwell")]
    sums = {learner: sum(errors[learner] for errors in unseen) for learner in unseen[0]}
    assert table["prices"]["attention"]["architecture unseen"] == min(sums, key=lambda x: sums[x])


def test_an_architecture_is_known_where_a_device_of_it_was_timed() -> None:
    families = {entry.family for entry in devices().values()}
    assert all(family in families for names in ARCHITECTURES.values() for family in names)
    assert learner_of("attention", device("V100")) == "leaf_trees"
    assert learner_of("no_such_grid", device("V100")) == "trees"


def test_seconds_grow_with_work_and_stay_near_those_of_the_other_learner() -> None:
    on = device("V100")
    grid, other = untimed_attention_grid(on.name), learned_attention_grid(on.name)
    times = [grid.seconds(_attention(1, seq), on, 2) for seq in (1024, 2048, 4096, 8192)]
    assert times == sorted(times)
    for seq, seconds in zip((1024, 2048, 4096, 8192), times, strict=True):
        assert 0.4 < seconds / other.seconds(_attention(1, seq), on, 2) < 2.5


@pytest.mark.parametrize("name", ["V100", "T4", "A10"])
def test_a_prediction_is_what_plans_are_priced_with(name: str) -> None:
    kernel = _attention(2, 2048)
    (found,) = predict([kernel], name, 2)
    plans = KernelPricer(Machine(parse_cluster(f"8x{name}").cluster), 2).latency(kernel)
    assert plans.time_s == pytest.approx(straggler_seconds(found.time_s, kernel))
    assert plans.source == found.source


def test_the_bundled_constants_are_positive_and_near_ten_thousand_cycles() -> None:
    constants = read_leaf_trees().constants
    assert min(constants) > 0
    assert 3e3 < constants.prologue_cycles < 3e4
