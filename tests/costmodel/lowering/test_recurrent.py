"""Mixers that scan: bytes balance, work follows from sizes, kernels keep less than operations."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest

from shardwright.costmodel.kernel_latency.roofline import kernel_seconds
from shardwright.costmodel.lowering.layer_lowering import LayerShape, LoweredLayer
from shardwright.costmodel.lowering.layer_lowering import lower_layer as lower_layer_anew
from shardwright.costmodel.ops.recurrent.fused_scans import delta_rule_flops
from shardwright.datasets.catalogue.device import devices
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import (
    Attention,
    DeltaRule,
    KimiDeltaAttention,
    LightningAttention,
    Mixer,
    ParallelMixers,
    ShortConvolution,
    StateSpace,
)
from shardwright.spec.report.work_items import SCANS
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.number_formats import DTYPE_BYTES
from shardwright.spec.workload.training import LayerTraining

lower_layer = cache(lower_layer_anew)
STATE_SPACE = StateSpace(heads=8, head_dim=16, state_dim=24, groups=2, chunk=8)
DELTA_RULE = DeltaRule(key_heads=2, value_heads=4, key_dim=24, value_dim=16, chunk=8)
CONVOLUTION = ShortConvolution(channels=32)
BESIDE = ParallelMixers(
    attention=Attention(heads=4, kv_heads=2, head_dim=8),
    state_space=replace(STATE_SPACE, norm="none"),
)
KIMI_DELTA = KimiDeltaAttention(heads=2, head_dim=16, chunk=8)
LIGHTNING = LightningAttention(heads=4, head_dim=8, chunk=8)
BLOCKS = [
    BlockLayer(hidden=32, attention=STATE_SPACE, mlp=None),
    BlockLayer(hidden=32, attention=replace(STATE_SPACE, bias=True, conv_bias=False), mlp=None),
    BlockLayer(hidden=32, attention=DELTA_RULE, mlp=None),
    BlockLayer(hidden=32, attention=replace(DELTA_RULE, key_heads=4), mlp=None),
    BlockLayer(hidden=32, attention=replace(STATE_SPACE, norm="before_gate"), mlp=None),
    BlockLayer(hidden=32, attention=CONVOLUTION, mlp=None),
    BlockLayer(hidden=32, attention=replace(CONVOLUTION, conv_kernel=5, bias=True), mlp=None),
    BlockLayer(hidden=32, attention=BESIDE, mlp=None),
    BlockLayer(hidden=32, attention=KIMI_DELTA, mlp=None),
    BlockLayer(hidden=32, attention=LIGHTNING, mlp=None),
    BlockLayer(hidden=32, attention=LIGHTNING, mlp=None, norm_placement="stream"),
]
SPLITS = [
    LayerStrategy(tp=tp, sequence_parallel=sp, recompute=recompute)  # type: ignore[arg-type]
    for tp, sp in ((1, "none"), (2, "none"), (2, "megatron"))
    for recompute in ("none", "selective", "full")
]


def shape_of(strategy: LayerStrategy, **fields: object) -> LayerShape:
    plain = {
        "strategy": strategy,
        "before": None,
        "batch": 2,
        "seq_len": 28,
        "dtype": "bf16",
        "stack": stack("shardwright"),
    }
    return LayerShape(**{**plain, **fields})  # type: ignore[arg-type]


def cases() -> list[tuple[BlockLayer, LayerShape]]:
    found = []
    for name, attention, dtype in itertools.product(
        ("shardwright", "megatron"), ("flash", "unfused"), ("fp32", "bf16")
    ):
        used = replace(stack(name), attention=attention)  # type: ignore[arg-type]
        for block, strategy in itertools.product(BLOCKS, SPLITS):
            found.append((block, shape_of(strategy, stack=used, dtype=dtype)))
    return found


CASES = cases()


def kept_bytes(lowered: LoweredLayer) -> int:
    return lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes


def test_forward_and_backward_leave_exactly_the_parameter_gradients() -> None:
    for block, shape in CASES:
        lowered = lower_layer(block, shape)
        local = sum(math.prod(s.local_shape(shape.strategy.tp)) for s in layer_parameters(block))
        expected = local * DTYPE_BYTES[shape.dtype]
        if shape.stack.fusion.weight_gradient_accumulation:
            expected = 0
        change = lowered.forward.change_bytes + lowered.backward.change_bytes
        assert lowered.backward.gradient_bytes == expected, (block, shape)
        assert change == expected, (block, shape)
        again = lowered.accumulating_backward
        assert lowered.forward.change_bytes + again.change_bytes == 0, (block, shape)


def test_every_item_has_sizes_that_make_sense() -> None:
    for block, shape in CASES:
        lowered = lower_layer(block, shape)
        for found in (lowered.forward, lowered.backward):
            assert found.peak_bytes >= max(0, found.change_bytes)
            for kernel in found.kernels():
                assert all(size > 0 for size in kernel.shape)
                assert kernel.traffic_bytes > 0


def test_recomputation_orders_what_is_kept_and_what_is_done() -> None:
    """A fused scan makes again what it needs anyway, so selective leaves it as it is."""
    for block, shape in CASES:
        if shape.strategy.recompute != "none":
            continue
        none, selective, full = (
            lower_layer(block, replace(shape, strategy=replace(shape.strategy, recompute=r)))  # type: ignore[arg-type]
            for r in ("none", "selective", "full")
        )
        assert kept_bytes(full) < kept_bytes(selective)
        if shape.stack.attention == "flash" and block.attention != BESIDE:
            assert (selective.forward, selective.backward) == (none.forward, none.backward)
        else:
            assert kept_bytes(selective) < kept_bytes(none)
            assert selective.backward.flops > none.backward.flops
        extra = full.backward.flops - none.backward.flops
        assert extra == full.backward.recomputed_flops > 0


def test_fused_kernels_keep_less_than_single_operations() -> None:
    for block, shape in CASES:
        if shape.stack.attention == "flash" and shape.strategy.recompute == "none":
            plain = replace(shape, stack=replace(shape.stack, attention="unfused"))
            assert kept_bytes(lower_layer(block, shape)) < kept_bytes(lower_layer(block, plain))


def test_fused_state_space_keeps_what_its_kernel_saves() -> None:
    """Projected input, the scan's result and the norm's scales; the output product's input."""
    shape = shape_of(LayerStrategy())
    tokens, width = shape.batch * shape.seq_len, STATE_SPACE.inner_dim
    projected = width + STATE_SPACE.conv_dim + STATE_SPACE.heads
    kernel = 2 * tokens * (projected + width) + 4 * tokens * STATE_SPACE.groups
    around = 2 * tokens * (32 + 32 + width) + 4 * tokens  # input, its norm and scale; last product
    assert kept_bytes(lower_layer(BLOCKS[0], shape)) == kernel + around


def test_fused_delta_rule_keeps_what_its_kernel_saves() -> None:
    """Queries, keys, values and their scales, decay, rate, the inverse of each chunk's system."""
    shape, spec = shape_of(LayerStrategy()), DELTA_RULE
    tokens, heads = shape.batch * shape.seq_len, spec.value_heads
    scan = spec.conv_dim * 2 + 2 * 4 * spec.key_heads + heads * (4 + 2 + 2 * spec.chunk)
    gates = heads * (4 + 4) + 4 * heads / tokens  # steps before and after softplus; decay rates
    convolved = 2 * spec.conv_dim
    normed = 2 * 2 * spec.inner_dim + 4 * heads  # result and gate; scales
    around = 2 * (32 + 32 + spec.inner_dim) + 4
    expected = tokens * (scan + gates + convolved + normed + around)
    assert kept_bytes(lower_layer(BLOCKS[2], shape)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.attention.kind)
def test_tensor_parallelism_divides_the_work(block: BlockLayer, attention: str) -> None:
    used = replace(stack("shardwright"), attention=attention)  # type: ignore[arg-type]
    alone = lower_layer(block, shape_of(LayerStrategy(), stack=used))
    halved = lower_layer(block, shape_of(LayerStrategy(tp=2), stack=used))
    whole = 0  # narrow projections that each rank makes for itself
    if isinstance(block.attention, KimiDeltaAttention):
        whole = 2 * 2 * 28 * 2 * block.hidden * block.attention.head_dim
    assert halved.forward.flops * 2 == alone.forward.flops + whole
    assert halved.backward.flops * 2 == alone.backward.flops + 2 * whole
    assert {c.kind for c in halved.forward.collectives()} == {"all_reduce"}
    assert not alone.forward.collectives()


def scan_flops(block: BlockLayer, seq_len: int) -> list[int]:
    shape = shape_of(LayerStrategy(), batch=1, seq_len=seq_len)
    return [k.flops for k in lower_layer(block, shape).forward.kernels() if k.op in SCANS]


def test_state_space_flops_are_those_of_the_paper() -> None:
    """Dao and Gu, 2024, section 6: scores, values, added states, outputs of states."""
    spec = StateSpace(heads=112, head_dim=64, state_dim=128, groups=8)
    found = scan_flops(BlockLayer(hidden=4096, attention=spec, mlp=None), 4096)
    assert found == [2 * 4096 * (256 * 128 * 8 + 256 * 64 * 112 + 2 * 64 * 128 * 112)]
    assert found[0] == pytest.approx(32.2e9, rel=0.01)


def test_delta_rule_flops_are_those_of_the_chunked_form() -> None:
    spec = DeltaRule(key_heads=16, value_heads=32, key_dim=128, value_dim=128)
    found = scan_flops(BlockLayer(hidden=2048, attention=spec, mlp=None), 4096)
    products = 2 * 64 * 128 * 5 + 3 * 2 * 128 * 128
    assert found == [4096 * 32 * (products + 64 * 64 // 3)]
    assert delta_rule_flops(spec, 4096 * 32)[1] == found[0]


def test_kimi_delta_flops_are_those_of_a_delta_rule_of_its_sizes() -> None:
    kimi = KimiDeltaAttention(heads=32, head_dim=128)
    rule = DeltaRule(key_heads=32, value_heads=32, key_dim=128, value_dim=128)
    assert scan_flops(BlockLayer(hidden=2304, attention=kimi, mlp=None), 4096) == [
        delta_rule_flops(rule, 4096 * 32)[1]
    ]


def test_lightning_flops_are_those_of_its_four_products() -> None:
    spec = LightningAttention(heads=64, head_dim=128)
    found = scan_flops(BlockLayer(hidden=6144, attention=spec, mlp=None), 4096)
    assert found == [2 * 2 * 4096 * 64 * (256 * 128 + 128 * 128)]


@pytest.mark.parametrize(
    "mixer", [STATE_SPACE, DELTA_RULE, KIMI_DELTA, LIGHTNING], ids=lambda spec: spec.kind
)
def test_fused_work_is_linear_in_the_sequence(mixer: Mixer) -> None:
    block = BlockLayer(hidden=32, attention=mixer, mlp=None)
    short, long = (lower_layer(block, shape_of(LayerStrategy(), seq_len=n)) for n in (1024, 2048))
    assert long.forward.flops == 2 * short.forward.flops
    assert kept_bytes(long) == pytest.approx(2 * kept_bytes(short), rel=1e-4)


MEASURED_SCANS_S = {
    ("H100-SXM-80GB", 4, 4096, 32): 1.03e-3,
    ("H100-SXM-80GB", 1, 4096, 64): 0.55e-3,
    ("H200-SXM-141GB", 4, 4096, 32): 0.94e-3,
    ("H200-SXM-141GB", 8, 8192, 32): 3.72e-3,
    ("L40S-48GB", 4, 4096, 32): 4.13e-3,
    ("L40S-48GB", 1, 4096, 64): 1.84e-3,
}
"""Gated delta rule, 16 key heads, widths 128: aiconfigurator-core 0.12.0, gdn_perf, TensorRT-LLM
1.3.0rc20; by device, batch, sequence and value heads."""


@pytest.mark.parametrize("case", MEASURED_SCANS_S, ids=str)
def test_scans_are_priced_near_what_was_measured(case: tuple[str, int, int, int]) -> None:
    device, batch, seq_len, heads = case
    spec = DeltaRule(key_heads=16, value_heads=heads, key_dim=128, value_dim=128)
    block = BlockLayer(hidden=2048, attention=spec, mlp=None)
    lowered = lower_layer(block, shape_of(LayerStrategy(), batch=batch, seq_len=seq_len))
    (scan,) = (k for k in lowered.forward.kernels() if k.op in SCANS)
    assert scan.term == "attention"
    found = kernel_seconds(scan, devices()[device])
    assert found == pytest.approx(MEASURED_SCANS_S[case], rel=0.2)


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.attention.kind)
def test_frozen_mixers_leave_no_gradients_and_keep_no_more(
    block: BlockLayer, attention: str
) -> None:
    used = replace(stack("shardwright"), attention=attention)  # type: ignore[arg-type]
    shape = shape_of(LayerStrategy(), stack=used)
    trained = lower_layer(block, shape)
    frozen = lower_layer(block, replace(shape, training=LayerTraining(weights=False)))
    assert frozen.backward.gradient_bytes == 0
    assert frozen.forward.change_bytes + frozen.backward.change_bytes == 0
    assert kept_bytes(frozen) < kept_bytes(trained)
    assert frozen.backward.flops < trained.backward.flops
