"""Keys that an indexer chooses: work without a gradient, attention to fewer keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generators.layer_kinds import BATCH, HIDDEN, LATENT, STACKS, TOKENS, block, shape_of

from shardwright.costmodel.lowering.layer_lowering import LoweredLayer, lower_layer
from shardwright.costmodel.lowering.model_flops import forward_flops, model_flops_per_sample
from shardwright.costmodel.ops.indexer import selection_flops
from shardwright.spec.cluster.stack_spec import StackSpec
from shardwright.spec.model.mixers import Indexer
from shardwright.spec.model.model_spec import LayerRun, ModelSpec, Tower
from shardwright.spec.report.work_items import ATTENTIONS
from shardwright.spec.rules.executable import unsupported_block
from shardwright.spec.rules.layer_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.workload import DtypeRecord, Workload

INDEXER = Indexer(heads=2, head_dim=8, topk=4)
PLAIN = block(LATENT)
INDEXED = block(replace(LATENT, indexer=INDEXER))
SELECTION = selection_flops(replace(LATENT, indexer=INDEXER), HIDDEN, TOKENS)


def lowered(layer: object, used: StackSpec, **fields: object) -> LoweredLayer:
    strategy = LayerStrategy(**fields)  # type: ignore[arg-type]
    return lower_layer(layer, shape_of("latent", strategy, stack=used))  # type: ignore[arg-type]


def attention_flops(found: LoweredLayer) -> int:
    return sum(kernel.flops for kernel in found.forward.kernels() if kernel.op in ATTENTIONS)


@pytest.mark.parametrize("used", STACKS, ids=lambda s: f"{s.name}-{s.attention}")
def test_the_choice_is_forward_work_alone(used: StackSpec) -> None:
    every = block(replace(LATENT, indexer=replace(INDEXER, topk=TOKENS)))
    plain, chosen = lowered(PLAIN, used), lowered(every, used)
    assert chosen.forward.flops - plain.forward.flops == BATCH * SELECTION
    assert chosen.backward.flops == plain.backward.flops
    assert chosen.forward.change_bytes == plain.forward.change_bytes


def test_flash_attention_sees_the_chosen_keys_only() -> None:
    for used in STACKS:
        if used.attention == "flash":
            seen = attention_flops(lowered(INDEXED, used)), attention_flops(lowered(PLAIN, used))
            assert seen[0] * TOKENS == seen[1] * INDEXER.topk


def test_ranks_that_split_the_sequence_gather_keys_and_choices() -> None:
    used = STACKS[0]
    split = {"tp": 2, "sequence_parallel": "megatron"}
    plain, chosen = lowered(PLAIN, used, **split), lowered(INDEXED, used, **split)
    gathered = [
        [c.payload_bytes for c in found.forward.collectives() if c.kind == "all_gather"]
        for found in (plain, chosen)
    ]
    keys, choices = TOKENS * BATCH * INDEXER.head_dim * 2, TOKENS * BATCH * INDEXER.topk * 8
    assert sorted(gathered[1]) == sorted([*gathered[0], keys, choices])


def test_model_flops_count_the_choice_once() -> None:
    tower = Tower(name="main", layers=(LayerRun(layer=INDEXED, count=3),))
    model = ModelSpec(name="indexed", towers=(tower,))
    dtype = DtypeRecord.from_shorthand("bf16")
    workload = Workload(global_batch=1, seq_len=TOKENS, dtype=dtype)
    forward = sum(forward_flops(model, workload))
    assert model_flops_per_sample(model, workload) == 3 * forward - 3 * 2 * SELECTION


def test_what_has_an_indexer_is_refused_where_it_is_not_built() -> None:
    reason = unsupported_block(INDEXED)
    assert reason == "keys that an indexer chooses: planned but not run yet"
    ring = LayerStrategy(cp=2)
    assert layer_violation(PLAIN, ring, 2, 2, TOKENS) is None
    refused = layer_violation(INDEXED, ring, 2, 2, TOKENS)
    assert refused == "cp 2 with keys that an indexer chooses is not built yet"
