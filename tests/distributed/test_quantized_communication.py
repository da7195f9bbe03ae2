"""Weights and gradients in fewer bits between real ranks."""

from __future__ import annotations

from checks.lowering_check import Comparison
from generators.plan_cases import Case, sharded
from toys.technique_ranks import StatefulRankSuite, TechniqueRankSuite

from shardwright.costmodel.techniques import TECHNIQUES as PRICES
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.technique_values import with_value
from shardwright.spec.techniques import TECHNIQUES as VALUES
from shardwright.spec.techniques.quantized_communication import NAME, from_word


def quantized(strategy: LayerStrategy, word: str) -> LayerStrategy:
    """A strategy with a word of the technique."""
    return with_value(strategy, NAME, from_word(word))


def blocks_only(strategy: LayerStrategy, word: str, blocks: int = 2) -> list[LayerStrategy]:
    """Blocks with a word, embedding and head without."""
    return [strategy, *[quantized(strategy, word)] * blocks, strategy]


class WireSuite(TechniqueRankSuite):
    """Collectives are the priced ones; its kernels are fused on accelerators alone."""

    values, prices, name = VALUES, PRICES, NAME
    exact, loss_bound = False, 2e-3

    def check_kernels(self, found: Comparison, rank: int) -> None:
        """On cores a fused kernel is a chain of operations: products are what it shares."""
        assert found.recorded_flops == found.lowered_flops, rank


class TestSdp4bit(WireSuite, StatefulRankSuite):
    cases = (
        Case(name="zero2 in a node", strategies=blocks_only(sharded("zero2", 2), "sdp4bit")),
        Case(name="zero1 between nodes", strategies=blocks_only(sharded("zero1", 2), "sdp4bit@1")),
    )


class TestInt8Weights(WireSuite):
    cases = (
        Case(name="zero3", strategies=blocks_only(sharded("zero3", 2), "int8")),
        Case(name="zero2", strategies=blocks_only(sharded("zero2", 2), "int8")),
    )
