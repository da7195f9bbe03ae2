"""activation_swap is held to what every technique is, and to the figures of its card."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from generators.plan_cases import Case, Sizes, sharded
from oracles.brute_force import Space
from toys.technique_spaces import FEW, TWO, small_space, solved, with_host
from toys.technique_suite import Refused, TechniqueSuite

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.lowering.plan_lowering import Lowering
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.pricing.pricer import Pricer
from shardwright.costmodel.symbolic.tier_bytes import total_bytes
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.planner.techniques import SHIPPED
from shardwright.spec.model.feed_forward import Mlp
from shardwright.spec.model.layers import BlockLayer
from shardwright.spec.model.mixers import Attention
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques.activation_swap import NAME, ActivationSwap
from shardwright.spec.techniques.compile import NAME as COMPILE
from shardwright.spec.techniques.compile import Compile
from shardwright.spec.units import GIB

STACK = stack("shardwright")
FULL = LayerStrategy(recompute="full")
SHARDS = LayerStrategy(tp=8, sequence_parallel="megatron")
MILLION = 2**20
HOST_BYTES = 300_000
"""Room for the activations of one block of a small space, or for some of both."""
PAPER_BLOCK = BlockLayer(
    hidden=4096,
    attention=Attention(heads=32, kv_heads=32, head_dim=128, rotary=False),
    mlp=Mlp(ffn=16384, activation="gelu"),
    norm="layernorm",
)


def swapped(strategy: LayerStrategy, share: float) -> LayerStrategy:
    return with_value(strategy, NAME, ActivationSwap(share=share))


class TestActivationSwap(TechniqueSuite):
    known = SHIPPED
    name = NAME
    base, ranks = sharded("zero3", 2), 2
    asked = MappingProxyType({"host_gib": 1, "dtype": "bf16"})
    pinned = ("pp=1", "tp=1", "recompute=none")
    refused = (
        Refused(word="swap", because="swaps or recomputes", strategy=FULL),
        Refused(
            word="swap",
            because="beside compile",
            strategy=with_value(LayerStrategy(), COMPILE, Compile()),
        ),
    )

    def spaces(self) -> list[Space]:
        """Two devices, with room on the host for all activations of a block, or some of both."""
        words = ("none", "swap:0", "swap:0.25", "swap:0.5", "swap")
        small = small_space(SHIPPED, self.name, words, *FEW, TWO, dtype="bf16")
        return [with_host(small, HOST_BYTES)]

    def test_the_hosts_bytes_decide(self) -> None:
        """Some plans of the space fit the hosts, and some do not."""
        plans = solved(self.spaces()[0]).plans
        beyond = sum(plan.host_bytes > HOST_BYTES for plan in plans)
        assert len(plans) // 8 < beyond < len(plans)


def lowered(block: BlockLayer, strategy: LayerStrategy, tokens: int) -> LoweredLayer:
    """A block's micro-batch of one sample in bf16."""
    case = Case(name="", sizes=Sizes(blocks=2), ranks=8, dtype="bf16", micro_batch=8)
    plan = case.plan()
    lowering = Lowering(plan.model, plan.workload, STACK)
    shape = lowering.shape(1, strategy, None, 1, False)
    return lower_layer(block, replace(shape, seq_len=tokens))


@pytest.mark.parametrize(("logarithms", "share"), [(False, 0.4667), (True, 0.4656)])
def test_the_share_that_fits_is_the_papers(logarithms: bool, share: float) -> None:
    """MEMO, section 4.1: 32 layers, of which the last two stay; 256 GiB of host memory a device."""
    ends = [
        total_bytes(lowered(PAPER_BLOCK, swapped(SHARDS, end), MILLION).tier_bytes, "host")
        for end in (0.0, 1.0)
    ]
    extra = 0 if logarithms else MILLION * 32 // 8 * 4
    least, most = (end - extra for end in ends)
    found = (256 * GIB / 30 - least) / (most - least)
    assert found == pytest.approx(share, abs=5e-4)
    between = lowered(PAPER_BLOCK, swapped(SHARDS, found), MILLION).tier_bytes
    assert total_bytes(between, "host") - extra == pytest.approx(256 * GIB / 30, rel=1e-5)


def test_time_and_bytes_lie_on_or_above_the_line_between_the_ends() -> None:
    """To a token: so a search that holds the ends has bounds for all numbers between."""
    tokens = 2**16 // 8
    machine = Machine(parse_cluster("1x8xA100-80GB").cluster)
    pricer = Pricer(machine, STACK)
    draw = random.Random(0)

    def figures(share: float) -> list[float]:
        layer = lowered(PAPER_BLOCK, swapped(SHARDS, share), 2**16)
        copies = sum(item.traffic_bytes for works in layer.lanes for w in works for item in w.items)
        added = [entry for entry in layer.backward.entries if entry.technique]
        seconds = sum(pricer.split(entry.work for entry in added))
        return [seconds, copies, total_bytes(layer.tier_bytes, "host"), layer.backward.peak_bytes]

    off, on = figures(0.0), figures(1.0)
    for _ in range(64):
        share = round(draw.random(), 4)
        for number, value in enumerate(figures(share)[:3]):
            slope = on[number] - off[number]
            assert value >= off[number] + share * slope - abs(slope) / tokens, (share, number)
