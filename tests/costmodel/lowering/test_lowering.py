"""Symbolic runs of layers: bytes balance, FLOPs follow from sizes, choices order memory."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from generators.plan_cases import GPT2, LLAMA, QWEN3, Sizes
from generators.samples import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costmodel.lowering.layer_lowering import LayerShape, LoweredLayer
from shardwright.costmodel.lowering.layer_lowering import lower_layer as lower_layer_anew
from shardwright.costmodel.memory.pass_memory import Ledger
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.model.layer_parameters import layer_parameters
from shardwright.spec.model.model_spec import BlockLayer, EmbeddingLayer, HeadLayer, Layer
from shardwright.spec.report.work_items import Collective, Kernel
from shardwright.spec.rules.plan_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.number_formats import DTYPE_BYTES

lower_layer = cache(lower_layer_anew)
"""Several tests look at the same layers; each is lowered once in a process."""
STACKS = [stack("shardwright", on_cores=True), stack("megatron")]
SIZES = [LLAMA, QWEN3, GPT2, Sizes(gpt2=True), Sizes(kv_heads=4, vocab=100)]
SPLITS = [
    LayerStrategy(tp=tp, sequence_parallel=sp, recompute=recompute)  # type: ignore[arg-type]
    for tp in (1, 2)
    for sp in ("none", "megatron")
    for recompute in ("none", "selective", "full")
    if tp > 1 or sp == "none"
]
BEFORES = [None, *[s for s in SPLITS if s.recompute == "none"], LayerStrategy(tp=4)]


def shape_of(strategy: LayerStrategy, **fields: object) -> LayerShape:
    plain = {
        "before": None,
        "batch": 4,
        "seq_len": 16,
        "dtype": "fp32",
        "stack": STACKS[0],
        "strategy": strategy,
    }
    return LayerShape(**{**plain, **fields})  # type: ignore[arg-type]


def differs(before: LayerStrategy | None, strategy: LayerStrategy) -> LayerStrategy | None:
    if before is None:
        return None
    same = (before.tp, before.megatron_sp) == (strategy.tp, strategy.megatron_sp)
    return None if same else before


def cases() -> list[tuple[Layer, LayerShape]]:
    """Every layer kind under every split, entry layout, attention, dtype and stack."""
    found = []
    for sizes, chosen, attention, dtype in itertools.product(
        SIZES, STACKS, ("flash", "unfused"), ("fp32", "bf16")
    ):
        layers = dict.fromkeys(sizes.model().layers())
        used = replace(chosen, attention=attention)  # type: ignore[arg-type]
        for layer, strategy, before in itertools.product(layers, SPLITS, BEFORES):
            if layer_violation(layer, strategy, 4, 4 * 4 // strategy.tp, 16) is not None:
                continue
            entry = None if isinstance(layer, EmbeddingLayer) else differs(before, strategy)
            shape = shape_of(strategy, before=entry, stack=used, dtype=dtype)
            found.append((layer, shape))
    return list(dict.fromkeys(found))


CASES = cases()


@pytest.fixture(scope="module", autouse=True)
def _forget_layers() -> Iterator[None]:
    """What this module keeps slows down every later collection of garbage."""
    yield
    lower_layer.cache_clear()


def local_gradient_bytes(layer: Layer, shape: LayerShape) -> int:
    """Bytes of a whole gradient of every parameter on the fullest tensor-parallel rank."""
    multiple, tp = shape.stack.vocab_multiple, shape.strategy.tp
    total = 0
    for spec in layer_parameters(layer, shape.seq_len):
        local = spec.local_shape(tp)
        if isinstance(layer, (EmbeddingLayer, HeadLayer)) and spec.split_dim == 0:
            rows = -(-layer.vocab // (multiple * tp)) * multiple if multiple > 1 else local[0]
            local = (rows, *local[1:])
        total += math.prod(local)
    return total * DTYPE_BYTES[shape.dtype]


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 500


def test_forward_and_backward_leave_exactly_the_parameter_gradients() -> None:
    """Everything saved is freed; input and its gradient change places."""
    for layer, shape in CASES:
        lowered = lower_layer(layer, shape)
        change = lowered.forward.change_bytes + lowered.backward.change_bytes
        in_main = shape.stack.fusion.weight_gradient_accumulation
        expected = 0 if in_main else local_gradient_bytes(layer, shape)
        assert lowered.backward.gradient_bytes == expected, (layer, shape)
        assert change == lowered.backward.gradient_bytes, (layer, shape)
        again = lowered.accumulating_backward
        assert again.gradient_bytes == 0
        assert lowered.forward.change_bytes + again.change_bytes == 0, (layer, shape)


def test_peaks_bound_what_is_left() -> None:
    for layer, shape in CASES:
        lowered = lower_layer(layer, shape)
        for found in (lowered.forward, lowered.backward, lowered.accumulating_backward):
            assert found.peak_bytes >= max(0, found.change_bytes)
        assert lowered.forward.gradient_bytes == 0


def kept_bytes(lowered: LoweredLayer) -> int:
    """What a micro-batch in flight holds of a layer, its input counted where it is saved."""
    return lowered.forward.change_bytes - lowered.output_bytes + lowered.input_bytes


def test_recomputation_orders_what_is_kept_and_what_is_done() -> None:
    for layer, shape in CASES:
        if not isinstance(layer, BlockLayer) or shape.strategy.recompute != "none":
            continue
        none, selective, full = (
            lower_layer(layer, replace(shape, strategy=replace(shape.strategy, recompute=r)))  # type: ignore[arg-type]
            for r in ("none", "selective", "full")
        )
        assert kept_bytes(full) < kept_bytes(selective) < kept_bytes(none)
        assert none.forward.flops == selective.forward.flops == full.forward.flops
        assert none.backward.flops < selective.backward.flops < full.backward.flops
        assert none.backward.recomputed_flops == 0
        for again in (selective, full):
            extra = again.backward.flops - none.backward.flops
            assert extra == again.backward.recomputed_flops


def test_flash_keeps_less_than_unfused_and_sequence_parallelism_less_than_none() -> None:
    for layer, shape in CASES:
        if not isinstance(layer, BlockLayer) or shape.strategy.recompute != "none":
            continue
        if shape.stack.attention == "flash":
            unfused = replace(shape, stack=replace(shape.stack, attention="unfused"))
            long = [replace(s, seq_len=512) for s in (shape, unfused)]
            assert kept_bytes(lower_layer(layer, long[0])) < kept_bytes(lower_layer(layer, long[1]))
        if shape.strategy.tp > 1 and shape.strategy.sequence_parallel == "none":
            split = replace(shape, strategy=replace(shape.strategy, sequence_parallel="megatron"))
            assert kept_bytes(lower_layer(layer, split)) < kept_bytes(lower_layer(layer, shape))


def matmul_flops(lowered: LoweredLayer) -> int:
    return sum(k.flops for k in lowered.forward.kernels() if k.op == "matmul")


def test_forward_products_are_two_flops_a_weight_a_token() -> None:
    """Split over the ranks, not multiplied by them."""
    for layer, shape in CASES:
        if isinstance(layer, EmbeddingLayer):
            assert lower_layer(layer, shape).forward.flops == 0
            continue
        matrices = [s for s in layer_parameters(layer, 16) if len(s.shape) == 2]
        if isinstance(layer, HeadLayer) and shape.stack.vocab_multiple > 1:
            continue  # the padded vocabulary is multiplied too
        weights = sum(math.prod(s.local_shape(shape.strategy.tp)) for s in matrices)
        tokens = shape.batch * shape.seq_len
        assert matmul_flops(lower_layer(layer, shape)) == 2 * weights * tokens


def test_sequence_parallel_moves_as_many_bytes_as_all_reduce() -> None:
    """Korthikanti et al., 2022, section 4.2.2: a ring all-reduce is both of its halves."""
    for layer, shape in CASES:
        strategy = shape.strategy
        if strategy.tp == 1 or strategy.sequence_parallel != "none" or shape.before is not None:
            continue
        if not isinstance(layer, BlockLayer) or strategy.recompute != "none":
            continue
        split = replace(shape, strategy=replace(strategy, sequence_parallel="megatron"))
        plain, sequence = lower_layer(layer, shape), lower_layer(layer, split)
        assert {c.kind for c in plain.forward.collectives()} == {"all_reduce"}
        assert {c.kind for c in sequence.forward.collectives()} == {"all_gather", "reduce_scatter"}
        whole = sum(2 * c.payload_bytes for c in plain.forward.collectives())
        assert sum(c.payload_bytes for c in sequence.forward.collectives()) == whole


def test_nothing_is_communicated_without_tensor_parallelism() -> None:
    for layer, shape in CASES:
        if shape.strategy.tp == 1 and shape.before is None:
            lowered = lower_layer(layer, shape)
            assert not lowered.forward.collectives()
            assert not lowered.backward.collectives()


@given(st.integers(0, 63), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2]))
@settings(max_examples=60)
def test_work_grows_with_the_batch(seed: int, batch: int, tp: int) -> None:
    space = random_problem(seed)
    for layer in space.model.kinds():
        strategy = LayerStrategy(tp=tp)
        small, large = (
            lower_layer(
                layer,
                shape_of(strategy, batch=b, seq_len=256, stack=space.stack, dtype="bf16"),
            )
            for b in (batch, batch + 1)
        )
        assert large.forward.flops >= small.forward.flops
        assert kept_bytes(large) >= kept_bytes(small)
        assert large.forward.peak_bytes >= small.forward.peak_bytes
        fullest = [kept_bytes(x) + x.output_bytes + x.backward.peak_bytes for x in (small, large)]
        assert fullest[0] <= fullest[1]


def test_every_item_has_sizes_that_make_sense() -> None:
    for layer, shape in CASES:
        lowered = lower_layer(layer, shape)
        for found in (lowered.forward, lowered.backward):
            for kernel in found.kernels():
                assert isinstance(kernel, Kernel)
                assert all(size > 0 for size in kernel.shape)
                assert kernel.traffic_bytes > 0
            for collective in found.collectives():
                assert isinstance(collective, Collective)
                assert collective.ranks > 1
                assert collective.payload_bytes > 0


def test_the_ledger_keeps_the_fullest_moment() -> None:
    """Against a plain list of all moments."""
    source = random.Random(0)
    for _ in range(50):
        ledger, live, best = Ledger(), [0] * 6, 0
        for _ in range(30):
            term, size = source.randrange(6), source.randint(-5, 10)
            if source.random() < 0.3:
                ledger.touch(abs(size))
                best = max(best, sum(live) + abs(size))
                continue
            ledger.add(term, size)
            live[term] += size
            best = max(best, sum(live))
        assert sum(ledger.peak) == best
        assert ledger.live == live


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_tensor_parallelism_divides_the_work_of_a_block(tp: int) -> None:
    block = Sizes(hidden=256, heads=8, kv_heads=8, ffn=512).model().layers()[1]
    alone = lower_layer(block, shape_of(LayerStrategy()))
    split = lower_layer(block, shape_of(LayerStrategy(tp=tp)))
    assert split.forward.flops * tp == alone.forward.flops
    assert split.backward.flops * tp == alone.backward.flops
