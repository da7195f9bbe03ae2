"""A layer put together from its parts does and keeps what it does lowered whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from generators import expert_cases, layer_kinds

from shardwright.costmodel.lowering.layer_lowering import lower_layer
from shardwright.costmodel.lowering.layer_parts import assemble_layer_work
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.symbolic.layer_shape import LayerShape
from shardwright.costmodel.symbolic.lowered_pass import LoweredPass
from shardwright.costmodel.symbolic.tape import TapeEntry
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.datasets.models.load import presets
from shardwright.spec.choices import RECOMPUTES, Recompute
from shardwright.spec.model.layers import BlockLayer, Layer, MultiTokenLayer
from shardwright.spec.model.mixers import DeltaRule, StateSpace
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import LayerTraining, Lora

SCANS = (
    StateSpace(heads=8, head_dim=8, state_dim=8),
    DeltaRule(key_heads=8, value_heads=8, key_dim=8, value_dim=8),
)
ADAPTED = LayerTraining(weights=False, adapters=Lora(rank=4))
Case = tuple[str, Layer, LayerShape]


def every_case() -> Iterator[Case]:
    """Layers of every kind, mixtures of experts, scans, and multi-token layers around them."""
    for name, shape in layer_kinds.cases():
        yield name, layer_kinds.LAYERS[name], shape
    for number, moe in enumerate(expert_cases.MIXTURES):
        layer = expert_cases.block_of(moe)
        further = MultiTokenLayer(hidden=layer.hidden, vocab=96, block=layer)
        for strategy, recompute in itertools.product(expert_cases.splits(layer, 4), RECOMPUTES):
            shape = expert_cases.shape_of(replace(strategy, recompute=recompute))
            yield f"experts {number}", layer, shape
            yield f"multi-token with experts {number}", further, shape
    for scan, recompute in itertools.product(SCANS, RECOMPUTES):
        block = replace(expert_cases.block_of(expert_cases.MIXTURES[0]), attention=scan)
        yield scan.kind, block, expert_cases.shape_of(LayerStrategy(recompute=recompute))
    for recompute in RECOMPUTES:
        shape = layer_kinds.shape_of("causal", LayerStrategy(tp=2, recompute=recompute))
        for training in (ADAPTED, LayerTraining(weights=False, backward=False)):
            yield "not all trained", layer_kinds.BLOCK, replace(shape, training=training)
        yield "narrow", layer_kinds.BLOCK, replace(shape, matmul="fp8_tensor")


def entries(passes: tuple[LoweredPass, ...]) -> list[TapeEntry]:
    """What passes in a row consist of."""
    return [entry for lowered in passes for entry in lowered.entries]


CASES = list(every_case())


def test_there_are_enough_cases() -> None:
    assert len(CASES) > 1200
    assert sum(len(assemble_layer_work(layer, shape).block) == 2 for _, layer, shape in CASES) > 800


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_parts_in_a_row_are_the_layer(name: str) -> None:
    for kind, layer, shape in CASES:
        if kind != name:
            continue
        whole, work = lower_layer(layer, shape), assemble_layer_work(layer, shape)
        kept = whole.forward.change_bytes - whole.output_bytes + whole.input_bytes
        assert work.kept_bytes == kept, shape
        assert entries(work.forward) == list(whole.forward.entries), shape
        assert entries(work.backward(accumulates=False)) == list(whole.backward.entries), shape
        again = whole.accumulating_backward.entries
        assert entries(work.backward(accumulates=True)) == list(again), shape


@pytest.mark.parametrize("recompute", RECOMPUTES)
@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize("experts", [False, True])
def test_parts_in_a_row_take_as_long_as_the_layer(
    experts: bool, tp: int, recompute: Recompute
) -> None:
    """Sizes at which collectives hide beside products, across the ends of parts too."""
    name = "mixtral-8x7b" if experts else "llama-3-70b"
    layer = next(x for x in presets()[name].model.kinds() if isinstance(x, BlockLayer))
    used = stack("shardwright").with_overlap("all")
    strategy = LayerStrategy(tp=tp, sequence_parallel="megatron", recompute=recompute)
    shape = LayerShape(strategy, None, 1, 8192, "bf16", used)
    pricer = Pricer(Machine(parse_cluster("8x8xH100").cluster), used)
    whole, work = lower_layer(layer, shape), assemble_layer_work(layer, shape)
    ways = (
        (work.forward, whole.forward),
        (work.backward(accumulates=False), whole.backward),
        (work.backward(accumulates=True), whole.accumulating_backward),
    )
    for parts, one in ways:
        found, meant = pricer.chained(parts), pricer.layer_pass(one)
        assert found.time_s == pytest.approx(meant.time_s, rel=1e-12)
        assert found.terms_s == pytest.approx(meant.terms_s, rel=1e-12)
