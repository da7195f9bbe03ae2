"""A layer put together from its parts leaves what it does whole for its weight gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from generators import expert_cases, layer_kinds

from shardwright.costmodel.lowering.layer_lowering import lower_layer, lower_split_backward
from shardwright.costmodel.lowering.layer_parts import assemble_layer_work
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.choices import RECOMPUTES
from shardwright.spec.model.layers import Layer, MultiTokenLayer
from shardwright.spec.model.mixers import DeltaRule, StateSpace
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import LayerTraining, Lora

SCANS: tuple[StateSpace | DeltaRule, ...] = (
    StateSpace(heads=8, head_dim=8, state_dim=8),
    DeltaRule(key_heads=8, value_heads=8, key_dim=8, value_dim=8),
)
TRAININGS = (
    LayerTraining(weights=False, adapters=Lora(rank=4)),
    LayerTraining(weights=False),
    LayerTraining(weights=False, backward=False),
)
EVERY = 5
"""One of so many cases is looked at: of every stack and recomputation, so it divides neither."""
Case = tuple[str, Layer, LayerShape]


def of_kinds() -> Iterator[Case]:
    """Layers of every kind: dense, latent attention, ends, in every split that they are tested."""
    cases = list(layer_kinds.cases())
    for name in layer_kinds.LAYERS:
        own = [shape for kind, shape in cases if kind == name]
        yield from ((name, layer_kinds.LAYERS[name], shape) for shape in own[::EVERY])


def of_experts() -> Iterator[Case]:
    """Mixtures of experts over ranks, alone and in a multi-token layer."""
    for number, moe in enumerate(expert_cases.MIXTURES):
        layer = expert_cases.block_of(moe)
        further = MultiTokenLayer(hidden=layer.hidden, vocab=96, block=layer)
        splits = itertools.product(expert_cases.splits(layer, 4), RECOMPUTES)
        for strategy, recompute in list(splits)[::EVERY]:
            shape = expert_cases.shape_of(replace(strategy, recompute=recompute))
            yield f"experts {number}", layer, shape
            yield f"multi-token with experts {number}", further, shape


def of_others() -> Iterator[Case]:
    """Scans, layers that are not all trained, tables that share a weight, another stack."""
    for scan, recompute in itertools.product(SCANS, RECOMPUTES):
        block = replace(expert_cases.block_of(expert_cases.MIXTURES[0]), attention=scan)
        yield scan.kind, block, expert_cases.shape_of(LayerStrategy(recompute=recompute))
    for recompute in RECOMPUTES:
        shape = layer_kinds.shape_of("causal", LayerStrategy(tp=2, recompute=recompute))
        for training in TRAININGS:
            yield "not all trained", layer_kinds.BLOCK, replace(shape, training=training)
        yield "narrow", layer_kinds.BLOCK, replace(shape, matmul="fp8_tensor")
        yield "megatron", layer_kinds.BLOCK, replace(shape, stack=stack("megatron"))
    for name in ("embedding", "head"):
        shape = layer_kinds.shape_of(name, LayerStrategy(tp=2))
        yield "tied", layer_kinds.LAYERS[name], replace(shape, shares_weight=True)


CASES = [*of_kinds(), *of_experts(), *of_others()]


def test_many_layers_leave_something() -> None:
    left = [assemble_layer_work(layer, shape).waiting_bytes for _, layer, shape in CASES]
    assert len(CASES) > 400
    assert sum(bytes_ > 0 for bytes_ in left) > 300
    assert min(left) == 0


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_parts_leave_what_the_whole_layer_does(name: str) -> None:
    """Adding to gradients or not: what goes with the weight part and is no gradient."""
    for kind, layer, shape in CASES:
        if kind != name:
            continue
        found = assemble_layer_work(layer, shape).waiting_bytes
        whole = lower_split_backward(layer, shape)
        for weight in (whole.weight, whole.accumulating_weight):
            assert found == weight.gradient_bytes - weight.change_bytes, shape


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_what_is_left_is_what_the_input_part_did_not_free(name: str) -> None:
    """Counted from the other side: forward and input part, without the gradients they leave."""
    for kind, layer, shape in CASES:
        if kind != name or not shape.training.backward:
            continue
        forward, split = lower_layer(layer, shape).forward, lower_split_backward(layer, shape)
        whole = lower_layer(layer, shape).backward
        freed = split.input.change_bytes - split.input.gradient_bytes
        freed_whole = whole.change_bytes - whole.gradient_bytes
        assert assemble_layer_work(layer, shape).waiting_bytes == freed - freed_whole, (
            shape,
            forward,
        )
