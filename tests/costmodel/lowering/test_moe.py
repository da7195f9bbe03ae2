"""Lowered mixtures of experts: closed forms of work and traffic, bytes that balance."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from generators.expert_cases import (
    BATCH,
    HIDDEN,
    MIXTURES,
    PLAIN,
    SEQ_LEN,
    block_of,
    shape_of,
    splits,
)

from shardwright.costmodel.kernel_latency.roofline import kernel_seconds
from shardwright.costmodel.layers.moe import rows_of
from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.pricing.collectives import collective_seconds, crossing_bytes
from shardwright.costmodel.pricing.machine import Machine
from shardwright.datasets.catalogue.device import device
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.stack_spec import KernelFusion
from shardwright.spec.model.experts import dropless
from shardwright.spec.model.feed_forward import Mlp, Moe
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.model_spec import BlockLayer
from shardwright.spec.report.work_items import GROUPED, Collective, Kernel
from shardwright.spec.strategy import LayerStrategy

RANKS = 8
MOE = Moe(**PLAIN)
STACKS = ("shardwright", "megatron", "torchtitan")
CASES = [
    (block_of(moe), strategy, name)
    for moe in MIXTURES
    for name in STACKS
    for strategy in splits(block_of(moe), RANKS)
]


def tokens_of(strategy: LayerStrategy) -> int:
    """Tokens that a rank routes."""
    return BATCH * SEQ_LEN // strategy.sequence_split


def grouped(lowered: LoweredLayer) -> list[Kernel]:
    work = lowered.forward.kernels() + lowered.backward.kernels()
    return [kernel for kernel in work if kernel.op in GROUPED]


def sent(lowered: LoweredLayer, kind: str, dtype: str = "bf16") -> Counter[tuple[int, int, int]]:
    """(ranks, stride, bytes) of the collectives of a kind, forward and backward."""
    work = lowered.forward.collectives() + lowered.backward.collectives()
    return Counter(
        (c.ranks, c.stride, c.payload_bytes) for c in work if (c.kind, c.dtype) == (kind, dtype)
    )


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 300
    assert {(s.tp, s.ep, s.etp) for _, s, _ in CASES} >= {
        (1, 8, 1),
        (2, 2, 2),
        (2, 1, 2),
        (4, 2, 4),
    }


def test_both_passes_leave_exactly_the_gradients_of_the_rank() -> None:
    for layer, strategy, name in CASES:
        lowered = lower_layer(layer, shape_of(strategy, name))
        specs = layer_parameters(layer, SEQ_LEN)
        elements = sum(
            math.prod(
                spec.expert_shape(strategy.ep, strategy.etp)
                if spec.expert
                else spec.local_shape(strategy.tp)
            )
            for spec in specs
        )
        expected = 0 if stack(name).fusion.weight_gradient_accumulation else 2 * elements
        assert lowered.backward.gradient_bytes == expected, (layer, strategy, name)
        change = lowered.forward.change_bytes + lowered.backward.change_bytes
        assert change == expected, (layer, strategy, name)
        again = lowered.accumulating_backward
        assert again.gradient_bytes == 0
        assert lowered.forward.change_bytes + again.change_bytes == 0


def test_experts_do_two_flops_a_weight_and_row_however_they_are_split() -> None:
    """All ranks together: 6 · tokens · topk · ffn · hidden · projections, backward counted."""
    for layer, strategy, name in CASES:
        moe = layer.mlp
        assert isinstance(moe, Moe)
        rows = rows_of(moe, tokens_of(strategy))
        width = moe.latent or HIDDEN
        projections = 3 if moe.gated else 2
        found = sum(
            kernel.flops for kernel in grouped(lower_layer(layer, shape_of(strategy, name)))
        )
        expected = 6 * rows * moe.ffn * width * projections
        if strategy.tp > 1 and strategy.sequence_parallel == "none":
            expected //= strategy.etp  # the tp ranks share their tokens
        assert found == expected, (layer, strategy, name)


def test_rows_are_topk_a_token_or_what_the_capacity_leaves() -> None:
    assert rows_of(MOE, 100) == 200
    assert rows_of(replace(MOE, capacity_factor=1.0), 100) == 200
    assert rows_of(replace(MOE, capacity_factor=1.25), 100) == 8 * math.ceil(250 / 8)
    assert rows_of(replace(MOE, capacity_factor=0.5), 100) == 8 * math.ceil(100 / 8)


@pytest.mark.parametrize("name", STACKS)
def test_tokens_travel_four_times_and_their_numbers_once(name: str) -> None:
    """There and back, forward and backward; nothing travels without expert parallelism."""
    for tp, sp, ep, etp in ((1, "none", 4, 1), (2, "megatron", 4, 1), (2, "megatron", 2, 2)):
        strategy = LayerStrategy(tp=tp, sequence_parallel=sp, ep=ep, etp=etp)  # type: ignore[arg-type]
        lowered = lower_layer(block_of(MOE), shape_of(strategy, name))
        row_bytes = rows_of(MOE, tokens_of(strategy)) * HIDDEN * 2
        assert sent(lowered, "all_to_all") == {(ep, etp, row_bytes): 4}
        assert sent(lowered, "all_to_all", "int64") == {(ep, etp, MOE.experts * 8): 1}
        if etp > 1:
            joined = (etp, 1, row_bytes * etp)
            assert sent(lowered, "all_gather")[joined] == 2
            assert sent(lowered, "reduce_scatter")[joined] == 2
        weighted = sent(lowered, "all_to_all", "fp32")
        inside = stack(name).fusion.weighted_activation
        assert weighted == ({(ep, etp, row_bytes // HIDDEN * 2): 2} if inside else {})
    alone = lower_layer(block_of(MOE), shape_of(LayerStrategy(), name))
    assert not alone.forward.collectives()
    assert not alone.backward.collectives()


def test_a_capacity_needs_no_numbers() -> None:
    layer = block_of(replace(MOE, capacity_factor=1.0))
    lowered = lower_layer(layer, shape_of(LayerStrategy(ep=4)))
    assert not sent(lowered, "all_to_all", "int64")


def test_experts_beside_shared_tokens_are_summed_like_an_mlp() -> None:
    """One all-reduce of the tokens each way, as the MLP has, and one of the weights' gradients."""
    strategy = LayerStrategy(tp=2, etp=2)
    tokens = BATCH * SEQ_LEN
    mixed = lower_layer(block_of(MOE), shape_of(strategy))
    plain = lower_layer(block_of(Mlp(ffn=96)), shape_of(LayerStrategy(tp=2)))
    assert sent(mixed, "all_reduce") == sent(plain, "all_reduce")
    assert sent(mixed, "all_reduce", "fp32") == {(2, 1, tokens * MOE.topk * 4): 1}
    assert not sent(mixed, "all_to_all")


def test_what_goes_to_experts_counts_as_their_exposed_time() -> None:
    lowered = lower_layer(block_of(MOE), shape_of(LayerStrategy(ep=4)))
    terms = {e.term for e in lowered.forward.entries if not isinstance(e.work, Kernel)}
    assert terms == {"exposed_ep"}


def test_full_recomputation_keeps_the_input_and_sends_tokens_again() -> None:
    strategy = LayerStrategy(ep=4, recompute="full")
    lowered = lower_layer(block_of(MOE), shape_of(strategy))
    assert lowered.keeps_input
    assert lowered.forward.change_bytes == lowered.output_bytes
    rows = rows_of(MOE, tokens_of(strategy)) * HIDDEN * 2
    assert sent(lowered, "all_to_all")[4, 1, rows] == 6
    plain = lower_layer(block_of(MOE), shape_of(replace(strategy, recompute="none")))
    assert plain.forward.change_bytes > 4 * lowered.forward.change_bytes
    assert lowered.backward.recomputed_flops == lowered.forward.flops


def test_kept_bytes_are_rows_through_the_experts_and_scores() -> None:
    """A row keeps its input, both projections, their product and its output (bf16)."""
    fused = stack("torchtitan")
    later = replace(fused.fusion, weighted_activation=False)
    kept = {}
    for inside, used in ((True, fused), (False, replace(fused, fusion=later))):
        found = [
            lower_layer(block_of(moe), replace(shape_of(LayerStrategy()), stack=used))
            for moe in (MOE, replace(MOE, topk=3))
        ]
        kept[inside] = found[1].forward.change_bytes - found[0].forward.change_bytes
    tokens = BATCH * SEQ_LEN
    row = 2 * (HIDDEN + 3 * MOE.ffn) + 8 + 4  # and where it goes, and its weight
    chosen = 8 + 4
    assert kept[True] == tokens * (row + chosen)
    assert kept[False] == tokens * (row + chosen + 2 * HIDDEN)


def test_fused_stacks_run_fewer_kernels_and_the_same_products() -> None:
    plain = stack("shardwright", on_cores=True)
    fusion = KernelFusion(router=True, permute=True, weighted_activation=True)
    layer, strategy = block_of(MIXTURES[3]), LayerStrategy(ep=2)
    eager = lower_layer(layer, shape_of(strategy, stack=plain))
    fused = lower_layer(layer, shape_of(strategy, stack=replace(plain, fusion=fusion)))
    assert fused.forward.flops == eager.forward.flops
    assert len(fused.forward.kernels()) < len(eager.forward.kernels())
    traffic = [sum(k.traffic_bytes for k in x.forward.kernels()) for x in (fused, eager)]
    assert traffic[0] < traffic[1]


def test_capacity_and_topk_move_flops_as_they_should() -> None:
    """Model FLOPs leave a capacity out; the experts' own grow with topk and nothing else does."""
    layer = block_of(replace(MOE, capacity_factor=2.0))
    assert dropless(layer) == block_of(MOE)
    assert dropless(block_of(Mlp(ffn=8))) == block_of(Mlp(ffn=8))
    shape = shape_of(LayerStrategy())
    once, twice = (lower_layer(block_of(replace(MOE, topk=k)), shape).forward.flops for k in (1, 2))
    assert twice - once == BATCH * SEQ_LEN * 6 * HIDDEN * MOE.ffn
    full = lower_layer(layer, shape).forward.flops
    assert full - twice == BATCH * SEQ_LEN * 2 * 6 * HIDDEN * MOE.ffn


def product(op: str, groups: int, m: int, k: int, n: int) -> Kernel:
    return Kernel(op, (groups, m, k, n), "bf16", 2 * m * k * n, 2 * (m * k + k * n + m * n))


@pytest.mark.parametrize("op", sorted(GROUPED))
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_grouped_products_grow_with_every_side(op: str, groups: int) -> None:
    h100 = device("H100-SXM-80GB")
    sides = [64, 300, 1024, 4096, 20000]
    for place in range(3):
        times = []
        for side in sides:
            m, k, n = (side if place == i else 512 for i in range(3))
            times.append(kernel_seconds(product(op, groups, m, k, n), h100))
        assert times == sorted(times)
        assert times[0] > 0


def test_one_group_costs_what_a_product_costs_and_even_groups_what_a_batch_costs() -> None:
    h100 = device("H100-SXM-80GB")
    m, k, n = 4096, 1024, 2048
    alone = product("grouped_matmul", 1, m, k, n)
    plain = Kernel("matmul", (m, k, n), "bf16", alone.flops, alone.traffic_bytes)
    assert kernel_seconds(alone, h100) == kernel_seconds(plain, h100)
    even = product("grouped_matmul", 8, m, k, n)
    batch = Kernel("batched_matmul", (8, m // 8, k, n), "bf16", even.flops, even.traffic_bytes)
    assert kernel_seconds(even, h100) == kernel_seconds(batch, h100)


def test_few_rows_use_few_experts() -> None:
    """A rank's rows touch no more experts than there are rows, and no other weight is read."""
    layer = block_of(Moe(experts=512, topk=1, ffn=32))
    shape = shape_of(LayerStrategy(), batch=1, seq_len=4)
    assert {k.shape[0] for k in grouped(lower_layer(layer, shape))} == {4}


def test_lowering_the_same_twice_gives_the_same() -> None:
    layer: BlockLayer = block_of(MIXTURES[3])
    shape = shape_of(LayerStrategy(tp=2, sequence_parallel="megatron", ep=4))
    first = lower_layer(layer, shape)
    lower_layer.cache_clear()
    assert lower_layer(layer, shape) == first


@pytest.mark.parametrize("name", STACKS)
def test_a_backward_in_two_parts_is_the_same_work(name: str) -> None:
    """Weight gradients wait with the rows they need; nothing is lost or done twice."""
    for moe in MIXTURES:
        lowered = lower_layer(block_of(moe), shape_of(LayerStrategy(ep=2), name))
        split = lowered.split_backward()
        whole = Counter(e.work for e in lowered.backward.entries)
        parts = Counter(e.work for p in (split.input, split.weight) for e in p.entries)
        assert parts == whole
        assert not split.weight.collectives()
        waiting = {kernel.op for kernel in split.input.kernels()}
        assert "grouped_matmul_wgrad" not in waiting
        change = split.input.change_bytes + split.weight.change_bytes
        assert change == lowered.backward.change_bytes
        rows = rows_of(moe, BATCH * SEQ_LEN)
        assert -split.weight.change_bytes + split.weight.gradient_bytes > 2 * rows * moe.ffn * 4


@pytest.mark.parametrize(
    ("ranks", "copies", "level", "tokens"),
    [
        (8, 8, 0, 7 * (1 - (7 / 8) ** 8)),
        (32, 8, 1, 3 * (1 - (3 / 4) ** 8)),
        (32, 8, 0, 4 * 7 * (1 - (31 / 32) ** 8)),
        (8, 1, 0, 7 / 8),
    ],
)
def test_a_token_crosses_a_level_once_to_each_group(
    ranks: int, copies: int, level: int, tokens: float
) -> None:
    """Bytes over what one token has, of ranks that are spread over nodes of eight."""
    item = Collective("all_to_all", ranks, 1, 2**20 * copies, "bf16", copies)
    members, inside = ((1, 8), (8, ranks))[level]
    assert crossing_bytes(item, members, inside) == pytest.approx(2**20 * tokens)


def test_tokens_that_travel_once_are_never_slower_than_rows() -> None:
    cluster = parse_cluster("8x8xH100-80GB").cluster
    for ranks in (4, 8, 16, 32, 64):
        rows, once = (
            collective_seconds(
                Collective("all_to_all", ranks, 1, 2**28, "bf16", copies), Machine(cluster)
            )
            for copies in (1, 8)
        )
        assert once < rows
