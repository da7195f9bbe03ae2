"""Layers and strategies that split the sequence inside attention: small ones, for tests."""

from __future__ import annotations

import itertools
from dataclasses import replace

from generators.plan_cases import Sizes

from shardwright.costmodel.lowering.layer_lowering import LayerShape, LoweredLayer, lower_layer
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.layers import BlockLayer, Layer
from shardwright.spec.model.mixers import LatentAttention
from shardwright.spec.report.work_items import Collective, ExposedTerm
from shardwright.spec.rules.layer_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy

SEQ_LEN = 64
SHARDWRIGHT = stack("shardwright", on_cores=True)
MHA = Sizes(heads=8, kv_heads=8, hidden=64, ffn=96, vocab=96)
GQA = Sizes(heads=8, kv_heads=4, hidden=64, ffn=96, vocab=96, qk_norm=True)
MLA = LatentAttention(heads=8, query_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=6)


def block(sizes: Sizes = GQA) -> BlockLayer:
    """The block of a small model."""
    return next(x for x in sizes.model().layers() if isinstance(x, BlockLayer))


def latent_block() -> BlockLayer:
    """A block of latent attention: keys and values of different widths."""
    return replace(block(MHA), attention=MLA)


def encoder_block() -> BlockLayer:
    """A block in which every token sees every other."""
    plain = block(GQA)
    return replace(plain, attention=replace(plain.attention, mask="full"))  # type: ignore[type-var]


def strategies(ranks: int) -> list[LayerStrategy]:
    """Every tp, cp and sequence parallelism that ``ranks`` ranks allow."""
    degrees = [d for d in range(1, ranks + 1) if ranks % d == 0]
    return [
        LayerStrategy(tp=tp, cp=cp, sequence_parallel=sp)
        for tp, cp, sp in itertools.product(degrees, degrees, ("none", "megatron", "ulysses"))
        if ranks % (tp * cp) == 0 and (tp > 1 or sp == "none")
    ]


def lowered(
    layer: Layer,
    strategy: LayerStrategy,
    batch: int = 1,
    before: LayerStrategy | None = None,
    dtype: str = "bf16",
    used: StackSpec = SHARDWRIGHT,
    seq_len: int = SEQ_LEN,
) -> LoweredLayer:
    """A micro-batch of ``batch`` samples a rank through the layer; it must be legal."""
    ranks = strategy.width
    assert layer_violation(layer, strategy, ranks, batch, seq_len) is None
    return lower_layer(
        layer,
        LayerShape(
            strategy=strategy,
            before=before,
            batch=batch,
            seq_len=seq_len,
            dtype=dtype,
            stack=used,
        ),
    )


def traffic(found: LoweredLayer, term: ExposedTerm) -> tuple[list[Collective], list[Collective]]:
    """Collectives of a term, forward and backward."""
    ways = (found.forward, found.backward)
    forward, backward = (
        [e.work for e in way.entries if isinstance(e.work, Collective) and e.term == term]
        for way in ways
    )
    return forward, backward
