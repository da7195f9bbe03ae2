"""Rings and Ulysses: the ranks' work adds up to the whole, traffic is what the papers count."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from generators.split_cases import (
    GQA,
    MHA,
    MLA,
    SEQ_LEN,
    SHARDWRIGHT,
    block,
    encoder_block,
    latent_block,
    lowered,
    strategies,
    traffic,
)

from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.layers import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from shardwright.spec.model.mixers import Attention, DeltaRule, StateSpace
from shardwright.spec.parallel.rank_groups import exchanges_tokens
from shardwright.spec.report.work_items import Kernel
from shardwright.spec.rules.layer_rules import layer_violation, stack_violation, unsupported_run
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.number_formats import DTYPE_BYTES
from shardwright.spec.workload.workload import Workload

BLOCKS = {"mha": block(MHA), "gqa": block(GQA), "mla": latent_block(), "full": encoder_block()}
SPLIT = [s for s in strategies(8) if s.cp > 1 or s.ulysses]
MATRIX = {"matmul", "batched_matmul"}
BF16 = 2


def legal(layer: Layer, strategy: LayerStrategy) -> bool:
    return layer_violation(layer, strategy, strategy.width, 1, SEQ_LEN) is None


@pytest.mark.parametrize("name", BLOCKS)
def test_the_ranks_flops_add_up_to_the_whole_block(name: str) -> None:
    """Those that split weights do a part of what the same ranks do without the split of tokens."""
    layer = BLOCKS[name]
    whole = lowered(layer, LayerStrategy())
    checked = 0
    for strategy in filter(lambda s: legal(layer, s), SPLIT):
        sp = "none" if strategy.ulysses else strategy.sequence_parallel
        alike = LayerStrategy(tp=strategy.weight_split, sequence_parallel=sp)
        part, by_weights = lowered(layer, strategy), lowered(layer, alike)
        for way in ("forward", "backward"):
            mine, theirs = getattr(part, way).flops, getattr(by_weights, way).flops
            assert mine * strategy.input_split == theirs, (strategy, way)
            if name != "mla":  # whose projections to the latent every tensor-parallel rank does
                assert mine * strategy.width == getattr(whole, way).flops
        checked += 1
    assert checked >= 8


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_attention_is_even_over_the_ranks_of_a_ring(recompute: str) -> None:
    for cp in (2, 4, 8):
        strategy = LayerStrategy(cp=cp, recompute=recompute)  # type: ignore[arg-type]
        found = lowered(block(), strategy)
        steps = [k for k in found.forward.kernels() if k.op == "flash_attention"]
        assert [k.shape for k in steps] == [(1, 8, 4, SEQ_LEN // cp, 8)] * cp
        again = 2 if recompute == "none" else 3
        whole = lowered(block(), LayerStrategy(recompute=recompute))  # type: ignore[arg-type]
        assert found.backward.flops * cp == whole.backward.flops
        flash = [k for k in found.backward.kernels() if k.op.startswith("flash_attention")]
        assert len(flash) == cp * (again - 1)


@pytest.mark.parametrize("name", ["mha", "gqa", "mla"])
def test_a_ring_sends_what_its_closed_form_says(name: str) -> None:
    layer = BLOCKS[name]
    mixer = layer.attention
    if isinstance(mixer, Attention):
        widths = 2 * mixer.kv_dim
    else:
        widths = MLA.heads * (MLA.key_dim + MLA.value_dim)
    for cp, tp, batch in itertools.product((2, 4, 8), (1, 2), (1, 3)):
        strategy = LayerStrategy(cp=cp, tp=tp)
        forward, backward = traffic(lowered(layer, strategy, batch), "exposed_cp")
        both = SEQ_LEN // cp * batch * widths // tp * BF16  # K and V of one rank
        assert {(c.kind, c.ranks, c.stride) for c in (*forward, *backward)} == {
            ("send_recv", cp, tp)
        }
        assert sum(c.payload_bytes for c in forward) == (cp - 1) * both
        assert sum(c.payload_bytes for c in backward) == (cp - 1) * both + cp * both
        assert len(forward) == cp - 1
        assert len(backward) == cp + 1


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ulysses_sends_four_buffers_each_way(ranks: int) -> None:
    """4·N·h/P elements a rank forward and backward (arXiv:2309.14509, section 3.2)."""
    layer = block(MHA)
    strategy = LayerStrategy(tp=ranks, sequence_parallel="ulysses")
    for way in traffic(lowered(layer, strategy), "exposed_cp"):
        assert {(c.kind, c.ranks, c.stride) for c in way} == {("all_to_all", ranks, 1)}
        assert sum(c.payload_bytes for c in way) == 4 * SEQ_LEN * layer.hidden // ranks * BF16
        assert len(way) == 4


def test_fewer_key_heads_send_less() -> None:
    mixer = block(GQA).attention
    assert isinstance(mixer, Attention)
    strategy = LayerStrategy(tp=4, sequence_parallel="ulysses")
    forward, backward = traffic(lowered(block(GQA), strategy), "exposed_cp")
    expected = SEQ_LEN // 4 * (2 * mixer.query_dim + 2 * mixer.kv_dim) * BF16
    assert sum(c.payload_bytes for c in forward) == expected
    assert sum(c.payload_bytes for c in backward) == expected


def test_both_together_exchange_heads_inside_a_ring() -> None:
    layer = block(MHA)
    strategy = LayerStrategy(tp=2, cp=4, sequence_parallel="ulysses")
    forward, _ = traffic(lowered(layer, strategy), "exposed_cp")
    kinds = [(c.kind, c.ranks, c.stride) for c in forward]
    ring, exchange = ("send_recv", 4, 2), ("all_to_all", 2, 1)
    assert kinds == [exchange] * 3 + [ring] * 3 + [exchange]
    whole = SEQ_LEN * layer.hidden * BF16
    assert {c.payload_bytes for c in forward if c.kind == "all_to_all"} == {whole // 8}
    assert {c.payload_bytes for c in forward if c.kind == "send_recv"} == {2 * whole // 8}


def test_activations_fall_as_the_sequence_is_split() -> None:
    """What a block keeps is the ranks' share; Ulysses keeps attention's output on both sides.

    A ring keeps latent attention's values alone, not the projection that they lie in.
    """
    for name, layer in BLOCKS.items():
        output = SEQ_LEN * (MLA.heads * MLA.value_dim if name == "mla" else layer.hidden) * BF16
        whole = lowered(layer, LayerStrategy()).forward.change_bytes
        for strategy in (LayerStrategy(cp=c) for c in (2, 4, 8)):
            overlapped_kernels = SEQ_LEN * MLA.heads * MLA.nope_dim * BF16 if name == "mla" else 0
            assert (
                lowered(layer, strategy).forward.change_bytes * strategy.cp
                == whole - overlapped_kernels
            )
        for tp in (2, 4, 8):
            ulysses = LayerStrategy(tp=tp, sequence_parallel="ulysses")
            if legal(layer, ulysses):
                kept = lowered(layer, ulysses).forward.change_bytes * tp
                assert kept <= whole + output
                assert kept == whole + output or name == "mla"  # its values lie beside its keys


def gradient_bytes(layer: Layer, strategy: LayerStrategy, dtype: str) -> int:
    sizes = (spec.local_shape(strategy.weight_split) for spec in layer_parameters(layer, SEQ_LEN))
    return sum(math.prod(shape) for shape in sizes) * DTYPE_BYTES[dtype]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_only_parameter_gradients_are_left(dtype: str, recompute: str) -> None:
    layers: list[Layer] = [*BLOCKS.values(), *MHA.model().layers()[::5]]
    befores = [None, *strategies(8)]
    checked = 0
    for number, (layer, strategy) in enumerate(itertools.product(layers, SPLIT)):
        is_block = isinstance(layer, BlockLayer)
        own = replace(strategy, recompute=recompute) if is_block else strategy  # type: ignore[arg-type]
        if not legal(layer, own):
            continue
        before = None if isinstance(layer, EmbeddingLayer) else befores[number % len(befores)]
        if before is not None and before.layout == own.layout:
            before = None
        found = lowered(layer, own, batch=8, before=before, dtype=dtype)
        change = found.forward.change_bytes + found.backward.change_bytes
        assert found.backward.gradient_bytes == gradient_bytes(layer, own, dtype)
        assert change == found.backward.gradient_bytes, (own, before)
        assert found.forward.change_bytes + found.accumulating_backward.change_bytes == 0
        checked += 1
    assert checked > 50


def test_embedding_and_head_see_local_tokens() -> None:
    embedding, *_, head = GQA.model().layers()
    assert isinstance(embedding, EmbeddingLayer)
    assert isinstance(head, HeadLayer)
    for strategy in SPLIT:
        tokens = SEQ_LEN // strategy.sequence_split
        assert lowered(embedding, strategy).output_bytes == tokens * embedding.hidden * BF16
        if strategy.ulysses or strategy.tp == 1:
            products = [k for k in lowered(head, strategy).forward.kernels() if k.op in MATRIX]
            assert [k.shape for k in products] == [(tokens, head.hidden, head.vocab)]


def test_seams_hand_over_every_token() -> None:
    """Input of the layout before, work of the layout after; gradients go the way back."""
    layer = block(MHA)
    for before, after in itertools.product(strategies(8), strategies(8)):
        if before.layout == after.layout or not (legal(layer, before) and legal(layer, after)):
            continue
        found = lowered(layer, after, batch=after.width, before=before)
        hidden = layer.hidden * BF16
        own = SEQ_LEN // before.sequence_split * before.width * hidden
        assert found.input_bytes == own, (before, after)
        assert found.output_bytes == SEQ_LEN // after.sequence_split * after.width * hidden
        exchanged = [c for c in found.forward.collectives() if c.kind == "all_to_all"]
        moved = exchanged[: len(exchanged) - 4 * after.ulysses]
        assert len(moved) == int(exchanges_tokens(before, after))
        assert all(c.ranks == math.lcm(before.width, after.width) for c in moved)


def test_without_a_ring_nothing_of_it_is_there() -> None:
    for tp, sp in ((1, "none"), (2, "none"), (2, "megatron")):
        found = lowered(block(), LayerStrategy(tp=tp, sequence_parallel=sp))  # type: ignore[arg-type]
        ops = {k.op for k in (*found.forward.kernels(), *found.backward.kernels())}
        assert traffic(found, "exposed_cp") == ([], [])
        assert "merge_attention" not in ops
        assert all(e.overlap is None for e in found.forward.entries)


def test_each_step_of_a_ring_runs_beside_one_attention_kernel() -> None:
    for way in (
        lowered(block(), LayerStrategy(cp=4)).forward,
        lowered(block(), LayerStrategy(cp=4)).backward,
    ):
        for number, entry in enumerate(way.entries):
            if entry.overlap is not None and entry.overlap.kernels:
                following = way.entries[number + 1].work
                assert isinstance(following, Kernel)
                assert following.op.startswith("flash_attention")


REFUSED = {
    "multiples of 16": (LayerStrategy(cp=8), {}, 72),
    "needs tp > 1": (LayerStrategy(sequence_parallel="ulysses"), {}, SEQ_LEN),
    "tokens that cp 2 leaves": (LayerStrategy(tp=8, cp=2, sequence_parallel="megatron"), {}, 36),
    "ulysses does not divide kv_heads 4": (
        LayerStrategy(tp=8, sequence_parallel="ulysses"),
        {},
        SEQ_LEN,
    ),
    "window of 16": (LayerStrategy(cp=2), {"window": 16}, SEQ_LEN),
    "sinks": (LayerStrategy(cp=2), {"sinks": True}, SEQ_LEN),
    "relative positions": (
        LayerStrategy(tp=2, sequence_parallel="ulysses"),
        {"relative_buckets": 32},
        SEQ_LEN,
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_split_is_named(words: str) -> None:
    strategy, fields, seq_len = REFUSED[words]
    plain = block(GQA)
    layer = replace(plain, attention=replace(plain.attention, **fields))  # type: ignore[type-var]
    reason = layer_violation(layer, strategy, strategy.width, 1, seq_len)
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize(
    "mixer",
    [
        StateSpace(heads=8, head_dim=8, state_dim=8),
        DeltaRule(key_heads=8, value_heads=8, key_dim=8, value_dim=8),
    ],
)
def test_recurrent_mixers_are_refused_by_name(mixer: StateSpace | DeltaRule) -> None:
    layer = replace(block(), attention=mixer)
    for strategy in (LayerStrategy(cp=2), LayerStrategy(tp=2, sequence_parallel="ulysses")):
        reason = layer_violation(layer, strategy, 2, 1, SEQ_LEN)
        assert reason is not None
        assert mixer.kind in reason


def test_a_window_as_long_as_the_sequence_may_go_round() -> None:
    plain = block()
    layer = replace(plain, attention=replace(plain.attention, window=SEQ_LEN))  # type: ignore[type-var]
    assert lowered(layer, LayerStrategy(cp=2)).forward.flops == (
        lowered(plain, LayerStrategy(cp=2)).forward.flops
    )


def test_a_ring_needs_flash_attention_and_both_run() -> None:
    ring = LayerStrategy(cp=2)
    ulysses = LayerStrategy(tp=2, sequence_parallel="ulysses")
    unfused = replace(SHARDWRIGHT, attention="unfused")
    assert stack_violation(ring, SHARDWRIGHT) is None
    assert "flash" in (stack_violation(ring, unfused) or "")
    assert stack_violation(ulysses, unfused) is None
    workload = Workload(global_batch=8, seq_len=SEQ_LEN)
    assert unsupported_run(ring, workload) is None
    assert unsupported_run(ulysses, workload) is None
