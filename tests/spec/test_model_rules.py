"""What arrangements of towers and sizes of parts are refused, each by its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardwright.spec.model.model_spec import (
    Attention,
    BlockLayer,
    ClassifierLayer,
    DeltaRule,
    EmbeddingLayer,
    HeadLayer,
    LatentAttention,
    LayerRun,
    Mlp,
    ModelSpec,
    Moe,
    MultiTokenLayer,
    NormLayer,
    PatchLayer,
    ProjectorLayer,
    StateSpace,
    Tower,
    TowerEdge,
)
from shardwright.spec.rules.input_rules import workload_violation
from shardwright.spec.rules.model_rules import model_problems
from shardwright.spec.workload.training import LayerTraining, Lora
from shardwright.spec.workload.workload import DtypeRecord, Workload

ATTENTION = Attention(heads=4, kv_heads=2, head_dim=8)
MOE = Moe(experts=8, topk=2, ffn=16)
BLOCK = BlockLayer(hidden=32, attention=ATTENTION, mlp=Mlp(ffn=64))
EMBEDDING = EmbeddingLayer(vocab=50, hidden=32)
HEAD = HeadLayer(hidden=32, vocab=50)
FURTHER = MultiTokenLayer(hidden=32, vocab=50, block=BLOCK)
PATCHES = PatchLayer(hidden=16, image=28, patch=7)
VISION_BLOCK = BlockLayer(
    hidden=16,
    attention=Attention(heads=2, kv_heads=2, head_dim=8, rotary=False, mask="full"),
    mlp=Mlp(ffn=32, activation="gelu"),
    norm="layernorm",
)
PROJECTOR = ProjectorLayer(hidden=16, inner=32, out=32)
CROSS = replace(ATTENTION, mask="full", rotary=False)
EDGE = TowerEdge(source="first", target="last")


def tower(name: str, *layers: Any, seq_len: int | None = None) -> Tower:
    return Tower(name=name, layers=tuple(LayerRun(layer=x) for x in layers), seq_len=seq_len)


def text(*layers: Any, **more: Any) -> ModelSpec:
    return ModelSpec(name="m", towers=(tower("last", *layers),), **more)


def block(**parts: Any) -> ModelSpec:
    return text(EMBEDDING, replace(BLOCK, **parts), HEAD)


VISION = tower("first", PATCHES, VISION_BLOCK, PROJECTOR, seq_len=PATCHES.tokens)
LANGUAGE = tower("last", EMBEDDING, BLOCK, HEAD)
READER = tower("last", EMBEDDING, replace(BLOCK, cross_attention=CROSS), HEAD)
ENCODER = tower("first", EMBEDDING, BLOCK, NormLayer(hidden=32))
CLASSES = tower("only", PATCHES, VISION_BLOCK, ClassifierLayer(hidden=16, classes=3), seq_len=17)


def towers(*parts: Tower, edges: tuple[TowerEdge, ...] = (EDGE,), **more: Any) -> ModelSpec:
    return ModelSpec(name="m", towers=parts, edges=edges, **more)


LEGAL = {
    "decoder": text(EMBEDDING, BLOCK, HEAD, tie_embeddings=True),
    "further tokens": text(EMBEDDING, BLOCK, FURTHER, HEAD),
    "image and text": towers(VISION, LANGUAGE),
    "encoder-decoder": towers(ENCODER, READER, shared_embedding=True, tie_embeddings=True),
    "classes": ModelSpec(name="m", towers=(CLASSES,)),
    "mixer alone": block(mlp=None),
    "feed-forward alone": block(attention=None),
    "parallel": block(parallel=True, shared_norm=True),
    "partial rotary": block(attention=replace(ATTENTION, head_dim=7, rotary_dim=6)),
    "grouped experts": block(mlp=replace(MOE, groups=4, groups_per_token=2)),
}
ILLEGAL = {
    "towers none": ModelSpec(name="m", towers=()),
    "towers 2 towers called last": towers(LANGUAGE, LANGUAGE),
    "towers another arrangement in first": towers(replace(LANGUAGE, name="first"), LANGUAGE),
    "towers another arrangement; needs": text(EMBEDDING, BLOCK, HEAD, FURTHER),
    "towers another": text(PATCHES, VISION_BLOCK, HeadLayer(hidden=16, vocab=9)),
    "edges.0.source nobody": towers(
        VISION, LANGUAGE, edges=(TowerEdge(source="nobody", target="last"),)
    ),
    "edges.0 last to first": towers(
        VISION, LANGUAGE, edges=(TowerEdge(source="last", target="first"),)
    ),
    "edges an edge twice": towers(VISION, LANGUAGE, edges=(EDGE, EDGE)),
    "edges several to last": ModelSpec(
        name="m",
        towers=(ENCODER, replace(ENCODER, name="second"), READER),
        edges=(EDGE, TowerEdge(source="second", target="last")),
    ),
    "edges none from first": towers(VISION, LANGUAGE, edges=()),
    "edges none to last": text(EMBEDDING, replace(BLOCK, cross_attention=CROSS), HEAD),
    "towers.first output of width 48": towers(
        tower("first", PATCHES, VISION_BLOCK, replace(PROJECTOR, out=48), seq_len=17), LANGUAGE
    ),
    "towers.first.seq_len 16": towers(replace(VISION, seq_len=16), LANGUAGE),
    "hidden several widths": text(EMBEDDING, BLOCK, replace(FURTHER, hidden=16), HEAD),
    "multi_token.vocab 51": text(EMBEDDING, BLOCK, replace(FURTHER, vocab=51), HEAD),
    "shared_embedding": towers(
        tower("first", replace(EMBEDDING, vocab=49), BLOCK), READER, shared_embedding=True
    ),
    "tie_embeddings": ModelSpec(name="m", towers=(CLASSES,), tie_embeddings=True),
    "patch 6": ModelSpec(
        name="m",
        towers=(tower("o", replace(PATCHES, patch=6), VISION_BLOCK, CLASSES.layers[-1].layer,
                      seq_len=17),),
    ),
    "block neither": block(attention=None, mlp=None),
    "rotary_dim 3": block(attention=replace(ATTENTION, rotary_dim=3)),
    "rotary_dim 10": block(attention=replace(ATTENTION, rotary_dim=10)),
    "rope_dim 5": block(
        attention=LatentAttention(heads=2, kv_rank=8, nope_dim=4, rope_dim=5, value_dim=4)
    ),
    "groups 3": block(attention=StateSpace(heads=4, head_dim=8, state_dim=4, groups=3)),
    "key_heads 3": block(
        attention=DeltaRule(key_heads=3, value_heads=4, key_dim=8, value_dim=8)
    ),
    "topk 9": block(mlp=replace(MOE, topk=9)),
    "groups 5": block(mlp=replace(MOE, groups=5)),
    "groups_per_token 3": block(mlp=replace(MOE, groups=2, groups_per_token=3)),
    "topk 5; needs at most the 4": block(mlp=replace(MOE, topk=5, groups=2)),
    "shared_gate": block(mlp=replace(MOE, shared_gate=True)),
    "shared_norm": block(shared_norm=True),
    "parallel": block(parallel=True, norm_placement="post"),
    "cross_attention mask causal": towers(
        ENCODER, tower("last", EMBEDDING, replace(BLOCK, cross_attention=ATTENTION), HEAD)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_what_the_nouns_can_say_is_legal(name: str) -> None:
    assert list(model_problems(LEGAL[name])) == []


@pytest.mark.parametrize("rule", ILLEGAL)
def test_what_cannot_be_is_refused_by_its_rule(rule: str) -> None:
    found = [f"{p.field} {p.reason}" for p in model_problems(ILLEGAL[rule])]
    assert len(found) == 1, found
    assert found[0].startswith(rule)


def test_an_image_has_as_many_tokens_as_it_has() -> None:
    workload = Workload(global_batch=1, seq_len=16, dtype=DtypeRecord.from_shorthand("bf16"))
    reason = workload_violation(LEGAL["classes"], workload)
    assert reason == "seq_len 16 is not the 17 tokens of an image"
    assert workload_violation(LEGAL["classes"], replace(workload, seq_len=17)) is None


def test_an_image_needs_room_in_the_text() -> None:
    workload = Workload(global_batch=1, seq_len=16, dtype=DtypeRecord.from_shorthand("bf16"))
    model = LEGAL["image and text"]
    reason = workload_violation(model, workload)
    assert reason == "seq_len 16 has no room for the 17 tokens of an image"
    assert workload_violation(model, replace(workload, seq_len=17)) is None


def test_a_layer_trains_its_weights_or_adapters_beside_them() -> None:
    adapted = LayerTraining(weights=False, adapters=Lora(rank=4))
    trained = [LayerTraining(), adapted, LayerTraining(weights=False)]
    assert [one.trains for one in trained] == [True, True, False]
