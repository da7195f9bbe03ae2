"""Lowered experts under a load that is not even: the fullest rank's rows, exchanges and bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from generators.expert_cases import PLAIN, block_of, shape_of, splits

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.pricing.collectives import collective_seconds
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.stack_spec import ExpertChunks
from shardwright.spec.model.feed_forward import Moe
from shardwright.spec.report.work_items import GROUPED, Collective
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.expert_load import LoadBucket

RANKS, OVER, LATE = 8, 1.5, 2.0
LAYER = block_of(Moe(**PLAIN))
PARTS = (2, 4, 8)
SKEWED = LoadBucket(
    rows=tuple((n, OVER) for n in PARTS), memory_rows=tuple((n, OVER) for n in PARTS)
)
LATER = replace(SKEWED, memory_rows=tuple((n, LATE) for n in PARTS))
SPLIT = [s for s in splits(LAYER, RANKS) if s.ep > 1]


def lowered(
    strategy: LayerStrategy, load: LoadBucket | None, chunks: ExpertChunks | None = None
) -> LoweredLayer:
    shape = shape_of(strategy, load=load)
    if chunks is not None:
        shape = replace(shape, stack=replace(shape.stack, expert_chunks=chunks))
    return lower_layer(LAYER, shape)


def products(layer: LoweredLayer) -> int:
    work = layer.forward.kernels() + layer.backward.kernels()
    return sum(kernel.flops for kernel in work if kernel.op in GROUPED)


def exchanged(layer: LoweredLayer) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in (*layer.forward.collectives(), *layer.backward.collectives()):
        if one.kind == "all_to_all" and one.dtype != "int64":
            found[one.kind] += one.payload_bytes
    return found


@pytest.mark.parametrize("chunks", [None, ExpertChunks(forward=2, backward=4)])
def test_products_and_exchanges_take_the_fullest_rank(chunks: ExpertChunks | None) -> None:
    for strategy in SPLIT:
        even, skewed = (lowered(strategy, load, chunks) for load in (None, SKEWED))
        assert products(skewed) == pytest.approx(OVER * products(even), rel=0.01), strategy
        both = exchanged(even)["all_to_all"], exchanged(skewed)["all_to_all"]
        assert both[1] == pytest.approx(OVER * both[0], rel=0.01), strategy
        dense = even.forward.kernels(), skewed.forward.kernels()
        counts = [Counter(k.op for k in kernels) for kernels in dense]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("chunks", [None, ExpertChunks(forward=2, backward=2)])
def test_bytes_are_those_of_late_steps_and_balance(chunks: ExpertChunks | None) -> None:
    for strategy in SPLIT:
        skewed, later = (lowered(strategy, load, chunks) for load in (SKEWED, LATER))
        assert later.forward.entries == skewed.forward.entries
        assert later.backward.entries == skewed.backward.entries
        assert later.forward.change_bytes > skewed.forward.change_bytes
        assert later.backward.peak_bytes >= skewed.backward.peak_bytes
        for one in (skewed, later):
            change = one.forward.change_bytes + one.backward.change_bytes
            assert change == one.backward.gradient_bytes, strategy


def test_hierarchical_chunks_take_the_fullest_node_between_nodes() -> None:
    strategy = LayerStrategy(ep=8)
    chunks = ExpertChunks(forward=2, backward=2, inside=4)
    uneven = LoadBucket(rows=((2, 1.25), (8, 2.0)), memory_rows=((2, 1.25), (8, 2.0)))
    even, skewed = (lowered(strategy, load, chunks) for load in (None, uneven))

    def sent(layer: LoweredLayer, ranks: int) -> int:
        return sum(
            one.payload_bytes
            for one in layer.forward.collectives()
            if (one.kind, one.ranks) == ("all_to_all", ranks) and one.dtype != "int64"
        )

    assert sent(skewed, 2) == pytest.approx(1.25 * sent(even, 2))
    assert sent(skewed, 4) == pytest.approx(2.0 * sent(even, 4))


def test_experts_on_one_rank_cost_what_they_do_under_an_even_load() -> None:
    for strategy in splits(LAYER, RANKS):
        if strategy.ep == 1:
            even, skewed = (lowered(strategy, load) for load in (None, SKEWED))
            assert even.forward == skewed.forward
            assert even.backward == skewed.backward


def test_devices_behind_one_adapter_share_their_loads() -> None:
    """Two nodes of two: with an adapter each the fullest rank waits longest, else its node."""
    over = ((2, 1.5), (4, 2.2))
    uneven = Collective("all_to_all", 4, 1, 1 << 30, "bf16", over=over)
    alone, shared = (
        Machine(parse_cluster(f"2x2xA100@{fabric}").cluster)
        for fabric in ("2x400G-IB", "1x400G-IB")
    )
    even = uneven._replace(over=())
    assert collective_seconds(uneven, alone) == collective_seconds(even, alone)
    gained = collective_seconds(even, shared) / collective_seconds(uneven, shared)
    assert gained == pytest.approx(2.2 / 1.5, rel=0.05)
