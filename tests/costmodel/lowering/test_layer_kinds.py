"""Every layer kind: gradients balance, FLOPs follow from sizes, splits never do less."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from generators.layer_kinds import (
    ATTENTIONS,
    BATCH,
    BLOCK,
    BLOCKS,
    CROSS,
    HIDDEN,
    LATENT,
    LAYERS,
    SOURCE_TOKENS,
    STACKS,
    TOKENS,
    VOCAB,
    cases,
    shape_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    MultiTokenLayer,
)
from shardwright.spec.model.mixers import Attention
from shardwright.spec.report.work_items import FLASH_FORWARDS, Kernel, computed_fraction
from shardwright.spec.strategy import LayerStrategy

CASES = cases()
ALONE = LayerStrategy()
DTYPE_BYTES = 2


def gradient_bytes(layer: Layer, shape: LayerShape) -> int:
    """Bytes of a gradient of every parameter on the fullest tensor-parallel rank."""
    tp, multiple = shape.strategy.tp, shape.stack.vocab_multiple
    total = 0
    for spec in layer_parameters(layer, shape.seq_len):
        local = spec.local_shape(tp)
        if isinstance(layer, (EmbeddingLayer, HeadLayer)) and spec.split_dim == 0:
            local = (-(-layer.vocab // (multiple * tp)) * multiple, *local[1:])
        total += math.prod(local)
    return total * DTYPE_BYTES


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 700
    assert {name for name, _ in CASES} == set(LAYERS)


def test_forward_and_backward_leave_exactly_the_parameter_gradients() -> None:
    """Everything saved is freed; input and its gradient change places."""
    for name, shape in CASES:
        layer = LAYERS[name]
        lowered = lower_layer(layer, shape)
        in_main = shape.stack.fusion.weight_gradient_accumulation
        expected = 0 if in_main else gradient_bytes(layer, shape)
        assert lowered.backward.gradient_bytes == expected, (name, shape)
        change = lowered.forward.change_bytes + lowered.backward.change_bytes
        assert change == expected, (name, shape)
        again = lowered.accumulating_backward
        assert again.gradient_bytes == 0
        assert lowered.forward.change_bytes + again.change_bytes == 0, (name, shape)


def test_recomputing_orders_what_is_kept_and_done() -> None:
    for name, shape in CASES:
        if shape.strategy.recompute != "none" or name not in BLOCKS:
            continue
        none, selective, full = (
            lower_layer(LAYERS[name], replace(shape, strategy=replace(shape.strategy, recompute=r)))  # type: ignore[arg-type]
            for r in ("none", "selective", "full")
        )
        kept = [x.forward.change_bytes for x in (full, selective, none)]
        assert kept[0] < kept[2], (name, shape)
        assert kept[1] <= kept[2], (name, shape)
        assert none.backward.recomputed_flops == 0
        for again in (selective, full):
            extra = again.backward.flops - none.backward.flops
            assert extra == again.backward.recomputed_flops, (name, shape)


def products(lowered: LoweredLayer) -> int:
    return sum(k.flops for k in lowered.forward.kernels() if k.op == "matmul")


def weights(layer: Layer) -> int:
    """Elements of the matrices that every token is multiplied by."""
    return sum(
        math.prod(spec.shape)
        for spec in layer_parameters(layer, TOKENS)
        if len(spec.shape) == 2 and not spec.name.endswith(("relative.weight", "positions.weight"))
    )


@pytest.mark.parametrize("name", [n for n in BLOCKS if not n.startswith("cross")])
def test_a_block_multiplies_every_token_by_every_matrix(name: str) -> None:
    for used in STACKS:
        lowered = lower_layer(LAYERS[name], shape_of(name, ALONE, stack=used))
        assert products(lowered) == 2 * weights(LAYERS[name]) * TOKENS * BATCH


def test_cross_attention_projects_keys_and_values_of_the_source() -> None:
    lowered = lower_layer(LAYERS["cross"], shape_of("cross", ALONE))
    from_source = 2 * CROSS.kv_dim * HIDDEN
    from_own = weights(LAYERS["cross"]) - from_source
    assert products(lowered) == 2 * BATCH * (from_own * TOKENS + from_source * SOURCE_TOKENS)


def test_ends_and_towers_count_their_products() -> None:
    """By hand: rows in, columns out, tokens."""
    tokens = TOKENS * BATCH
    block = weights(BLOCK)
    by_hand = {
        "embedding": 0,
        "segments": 0,
        "patches": 27 * HIDDEN * tokens,
        "projector": (2 * HIDDEN * 40 + 40 * 24) * tokens // 2,
        "single projection": HIDDEN * 24 * tokens,
        "norm": 0,
        "classifier": HIDDEN * 10 * BATCH,
        "head": HIDDEN * VOCAB * tokens,
        "head after norms": (HIDDEN * VOCAB + HIDDEN * HIDDEN) * tokens,
        "capped head": HIDDEN * VOCAB * tokens,
        "multi-token": (2 * HIDDEN * HIDDEN + block + HIDDEN * VOCAB) * tokens,
    }
    for name, multiplied in by_hand.items():
        assert products(lower_layer(LAYERS[name], shape_of(name, ALONE))) == 2 * multiplied, name


def attention_flops(lowered: LoweredLayer) -> int:
    ops = (*FLASH_FORWARDS, "batched_matmul")
    return sum(k.flops for k in lowered.forward.kernels() if k.op in ops)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_scores_cost_two_products_of_what_may_be_seen(name: str) -> None:
    spec = ATTENTIONS[name].attention
    widths = LATENT.key_dim + LATENT.value_dim if "latent" in name else 16
    window = getattr(spec, "window", None) or getattr(spec, "chunk", None) or TOKENS
    for used in STACKS:
        skips = used.attention == "flash" or name == "unmasked chunks"
        seen = window if skips else TOKENS
        lowered = lower_layer(LAYERS[name], shape_of(name, ALONE, stack=used))
        assert attention_flops(lowered) == 2 * BATCH * 4 * TOKENS * seen * widths


def test_cross_attention_scores_every_token_of_the_source() -> None:
    for used in STACKS:
        lowered = lower_layer(LAYERS["cross"], shape_of("cross", ALONE, stack=used))
        own, other = TOKENS * TOKENS, TOKENS * SOURCE_TOKENS
        assert attention_flops(lowered) == 4 * BATCH * 4 * 8 * (own + other)


def test_causal_flash_kernels_keep_their_name_and_sizes() -> None:
    kernels = lower_layer(BLOCK, shape_of("causal", ALONE)).forward.kernels()
    found = [k for k in kernels if k.op == "flash_attention"]
    assert [k.shape for k in found] == [(BATCH, 4, 2, TOKENS, 8)]


@given(st.integers(1, 40), st.integers(0, 30), st.integers(1, 80))
def test_the_share_done_is_that_of_the_mask(queries: int, earlier: int, window: int) -> None:
    keys = queries + earlier
    reach = min(window, keys)
    seen = sum(min(reach, earlier + i + 1) for i in range(queries))
    shape = (1, 1, 1, queries, keys, 8, 8, reach)
    assert computed_fraction("flash_attention_band", shape) == pytest.approx(
        seen / (queries * reach)
    )
    assert computed_fraction("flash_attention_full", shape[:7]) == 1.0


def test_a_window_is_never_dearer_than_all_earlier_tokens() -> None:
    def done(window: int) -> float:
        kernel = Kernel("flash_attention_band", (1, 1, 1, 64, 64, 8, 8, window), "bf16", window, 0)
        return kernel.flops * computed_fraction(kernel.op, kernel.shape)

    assert all(done(w) < done(w + 1) for w in range(1, 64))


def widened(layer: Layer, tp: int) -> Layer:
    """The layer with enough key heads for the split."""
    if isinstance(layer, MultiTokenLayer):
        return replace(layer, block=_wide_block(layer.block, tp))
    return _wide_block(layer, tp) if isinstance(layer, BlockLayer) else layer


def _wide_block(block: BlockLayer, tp: int) -> BlockLayer:
    def wide(spec: object) -> object:
        return replace(spec, kv_heads=4) if isinstance(spec, Attention) and tp > 2 else spec

    return replace(
        block,
        attention=wide(block.attention),  # type: ignore[arg-type]
        cross_attention=wide(block.cross_attention),  # type: ignore[arg-type]
    )


@given(st.sampled_from(sorted(LAYERS)), st.sampled_from([2, 4]), st.booleans(), st.data())
@settings(max_examples=150, deadline=None)
def test_splitting_never_does_less_in_all(
    name: str, tp: int, sp: bool, data: st.DataObject
) -> None:
    layer = widened(LAYERS[name], tp)
    recompute = data.draw(st.sampled_from(("none", "selective", "full")))
    fields = {
        "stack": data.draw(st.sampled_from(STACKS)),
        "batch": data.draw(st.integers(1, 3)),
        "seq_len": TOKENS,
    }
    chosen = "none" if not isinstance(layer, (BlockLayer, MultiTokenLayer)) else recompute
    way = "megatron" if sp else "none"
    strategy = LayerStrategy(tp=tp, sequence_parallel=way, recompute=chosen)  # type: ignore[arg-type]
    alone = lower_layer(layer, shape_of(name, replace(ALONE, recompute=chosen), **fields))  # type: ignore[arg-type]
    split = lower_layer(layer, shape_of(name, strategy, **fields))
    for one, part in ((alone.forward, split.forward), (alone.backward, split.backward)):
        assert part.flops * tp >= one.flops
