"""BERT and ViT under many plans equal the single-process reference, and their lowering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checks.live_bytes_check import check_live_bytes
from checks.lowering_check import check_lowering
from checks.run_checks import check_case
from generators.family_cases import FamilyCase, bert, block, tower, vit
from generators.plan_cases import sharded
from ranks.rank_pools import RankPool

from shardwright.spec.model.layers import BlockLayer, EmbeddingLayer, HeadLayer
from shardwright.spec.model.model_spec import Attention, Mlp, ModelSpec
from shardwright.spec.strategy import LayerStrategy

TP2 = LayerStrategy(tp=2)
TP2_SP = LayerStrategy(tp=2, sequence_parallel="megatron")
ULYSSES = LayerStrategy(tp=2, sequence_parallel="ulysses")
MIXED = (
    TP2_SP,
    sharded("zero3", 4, recompute="full"),
    TP2,
    sharded("zero1", 4, recompute="selective"),
    replace(TP2_SP, recompute="full"),
    TP2_SP,
)
TWO_STAGES = FamilyCase(name="", model=bert(), stages=2, micro_batch=2, boundaries=(3,))
SPLIT = [
    replace(TWO_STAGES, name="bert zbv", kind="zbv", boundaries=(1, 3, 4), strategies=TP2_SP),
    replace(
        TWO_STAGES,
        name="vit zero bubble",
        model=vit(),
        kind="zero_bubble",
        strategies=sharded("zero2", 2),
    ),
]
"""Schedules that split the backward."""
PLANS = [
    FamilyCase(name="bert zero3", model=bert(), strategies=sharded("zero3", 4)),
    FamilyCase(
        name="bert zero1 unfused", model=bert(), strategies=sharded("zero1", 4), flash=False
    ),
    FamilyCase(name="bert tp2", model=bert(), strategies=TP2),
    FamilyCase(
        name="bert tp2 sp zero2",
        model=bert(),
        strategies=replace(TP2_SP, shard=sharded("zero2", 2).shard),
    ),
    FamilyCase(name="bert mixed", model=bert(), strategies=MIXED),
    FamilyCase(
        name="bert pp2 tied",
        model=bert(),
        stages=2,
        boundaries=(3,),
        micro_batch=2,
        strategies=sharded("zero2", 2, recompute="full"),
    ),
    FamilyCase(name="vit zero0", model=vit()),
    FamilyCase(
        name="vit zero3 full", model=vit(), strategies=sharded("zero3", 4, recompute="full")
    ),
    FamilyCase(
        name="vit tp2 zero1", model=vit(), strategies=replace(TP2, shard=sharded("zero1", 2).shard)
    ),
    FamilyCase(name="vit tp2 sp", model=vit(), strategies=TP2_SP),
    FamilyCase(
        name="vit selective unfused",
        model=vit(),
        strategies=sharded("zero2", 4, recompute="selective"),
        flash=False,
    ),
    FamilyCase(
        name="vit pp2 tp2", model=vit(), stages=2, boundaries=(3,), micro_batch=2, strategies=TP2
    ),
    *SPLIT,
]

SANDWICH = block(
    32, 64, norm_placement="sandwich", norm="rmsnorm", mlp=Mlp(ffn=64, activation="relu")
)
PARALLEL = block(32, 64, parallel=True)
CAPPED = HeadLayer(hidden=32, vocab=64, softcap=5.0)
OTHER_FORMS = ModelSpec(
    name="other forms",
    towers=(
        tower(
            "text",
            EmbeddingLayer(vocab=64, hidden=32),
            SANDWICH,
            PARALLEL,
            replace(PARALLEL, shared_norm=True),
            block(32, 64, attention=replace(PARALLEL.attention, mask="causal", rotary=True)),
            CAPPED,
        ),
    ),
)
"""Norms before and after parts, parts side by side, a capped head."""
PLANS += [
    FamilyCase(name="other forms zero3", model=OTHER_FORMS, strategies=sharded("zero3", 4)),
    FamilyCase(name="other forms mixed", model=OTHER_FORMS, strategies=MIXED),
]


def olmo(hidden: int = 32, ffn: int = 64, vocab: int = 64, *, joint: bool = True) -> ModelSpec:
    """OLMo 2: norms after each part, and over all query or key heads together if ``joint``."""
    attention = Attention(
        heads=4, kv_heads=2, head_dim=hidden // 4, qk_norm=True, qk_norm_joint=joint
    )
    after = BlockLayer(hidden=hidden, attention=attention, mlp=Mlp(ffn=ffn), norm_placement="after")
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    head = HeadLayer(hidden=hidden, vocab=vocab)
    only = tower("text", embedding, after, after, after, after, head)
    return ModelSpec(name="olmo", towers=(only,))


PLANS += [
    FamilyCase(name="norms after zero3", model=olmo(), strategies=sharded("zero3", 4)),
    FamilyCase(name="norms after ulysses", model=olmo(), strategies=ULYSSES),
    FamilyCase(name="norms after mixed", model=olmo(joint=False), strategies=MIXED),
]


@pytest.mark.parametrize("case", PLANS, ids=lambda c: c.name)
def test_runs_equal_the_reference(four_ranks: RankPool, case: FamilyCase) -> None:
    check_case(four_ranks, case)


WIDE_FORMS = replace(
    OTHER_FORMS,
    towers=(
        tower(
            "text",
            EmbeddingLayer(vocab=512, hidden=64),
            block(64, 160, norm_placement="sandwich", mlp=Mlp(ffn=160, activation="relu")),
            block(64, 160, parallel=True),
            block(64, 160, parallel=True, shared_norm=True),
            HeadLayer(hidden=64, vocab=512, softcap=5.0),
        ),
    ),
)
WIDE_BERT = bert(hidden=64, ffn=160, vocab=512)
WIDE_VIT = vit(hidden=64, ffn=160, image=28)
WIDE_OLMO = olmo(hidden=64, ffn=160, vocab=512)
LOWERED = [
    FamilyCase(name="bert", model=WIDE_BERT, seq_len=64, strategies=sharded("hsdp:2", 4)),
    FamilyCase(name="bert mixed", model=WIDE_BERT, seq_len=64, strategies=MIXED, flash=False),
    FamilyCase(name="vit", model=WIDE_VIT, strategies=sharded("hsdp:2", 4, recompute="full")),
    FamilyCase(name="vit tp2", model=WIDE_VIT, strategies=TP2, flash=False),
    FamilyCase(name="other forms", model=WIDE_FORMS, seq_len=64, strategies=sharded("zero2", 4)),
    FamilyCase(name="norms after", model=WIDE_OLMO, seq_len=64, strategies=sharded("zero2", 4)),
    FamilyCase(name="norms after ulysses", model=WIDE_OLMO, seq_len=64, strategies=ULYSSES),
    *SPLIT,
]


@pytest.mark.parametrize("case", LOWERED, ids=lambda c: c.name)
def test_runs_issue_what_the_lowering_names(four_ranks: RankPool, case: FamilyCase) -> None:
    check_lowering(four_ranks, case)


HELD = [
    FamilyCase(name="bert", model=WIDE_BERT, seq_len=64),
    FamilyCase(
        name="bert full", model=WIDE_BERT, seq_len=64, strategies=replace(TP2_SP, recompute="full")
    ),
    FamilyCase(
        name="bert unfused",
        model=WIDE_BERT,
        seq_len=64,
        strategies=sharded("hsdp:2", 4),
        flash=False,
    ),
    FamilyCase(name="norms after", model=WIDE_OLMO, seq_len=64),
    FamilyCase(name="vit", model=WIDE_VIT),
    FamilyCase(
        name="vit selective",
        model=WIDE_VIT,
        strategies=sharded("hsdp:2", 4, recompute="selective"),
        flash=False,
    ),
]


@pytest.mark.parametrize("case", HELD, ids=lambda c: c.name)
def test_runs_hold_what_is_predicted(four_ranks: RankPool, case: FamilyCase) -> None:
    check_live_bytes(four_ranks, case)
