"""Small encoders and encoder-decoders, and plans of them in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from generators.plan_cases import PLAIN, cpu_cluster

from shardwright.spec.model.layers import (
    BlockLayer,
    ClassifierLayer,
    EmbeddingLayer,
    HeadLayer,
    Layer,
    NormLayer,
    PatchLayer,
)
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import LayerRun, Mlp, ModelSpec, Tower, TowerEdge
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.schedules.stage_order import ScheduleKind, chunk_position
from shardwright.spec.strategy import LayerStrategy
from shardwright.spec.workload.training import Lora
from shardwright.spec.workload.workload import DtypeRecord, Workload


def block(hidden: int, ffn: int, **fields: object) -> BlockLayer:
    """A block of four heads that sees all tokens, with biases and layer norms."""
    attention = Attention(
        heads=4,
        kv_heads=4,
        head_dim=hidden // 4,
        rotary=False,
        qkv_bias=True,
        out_bias=True,
        mask="full",
    )
    plain = BlockLayer(
        hidden=hidden,
        attention=attention,
        mlp=Mlp(ffn=ffn, activation="gelu", bias=True),
        norm="layernorm",
        norm_eps=1e-12,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def tower(name: str, *layers: Layer, seq_len: int | None = None) -> Tower:
    """A tower; equal neighbours are one run."""
    runs: list[LayerRun] = []
    for layer in layers:
        if runs and runs[-1].layer == layer:
            runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
        else:
            runs.append(LayerRun(layer=layer))
    return Tower(name=name, layers=tuple(runs), seq_len=seq_len)


def bert(hidden: int = 32, ffn: int = 64, vocab: int = 64, blocks: int = 4) -> ModelSpec:
    """BERT: norms after the sums, segments, a tied head with transform and bias."""
    first = EmbeddingLayer(
        vocab=vocab, hidden=hidden, positions=80, token_types=2, norm="layernorm"
    )
    post = block(hidden, ffn, norm_placement="post")
    last = HeadLayer(
        hidden=hidden, vocab=vocab, norm=None, norm_eps=1e-12, bias=True, transform=True
    )
    only = tower("encoder", first, *[post] * blocks, last)
    return ModelSpec(name="bert", towers=(only,), tie_embeddings=True)


def vit(
    hidden: int = 32,
    ffn: int = 64,
    image: int = 12,
    patch: int = 4,
    blocks: int = 4,
    class_token: bool = True,
) -> ModelSpec:
    """ViT: patches, a class token, a classifier; (image / patch)² + 1 tokens."""
    first = PatchLayer(
        hidden=hidden, image=image, patch=patch, norm="layernorm", class_token=class_token
    )
    last = ClassifierLayer(hidden=hidden, classes=10, norm_eps=1e-12)
    layers = (first, *[block(hidden, ffn)] * blocks, last)
    only = tower("encoder", *layers, seq_len=first.tokens)
    return ModelSpec(name="vit", towers=(only,))


def t5(
    hidden: int = 32,
    ffn: int = 64,
    vocab: int = 64,
    blocks: int = 2,
    gated: bool = True,
    encoder_tokens: int | None = None,
) -> ModelSpec:
    """T5 1.1, or the first T5 with ReLU: one table for both towers and the head."""
    attention = Attention(
        heads=4, kv_heads=4, head_dim=hidden // 4, rotary=False, mask="full", relative_buckets=8
    )
    mlp = Mlp(ffn=ffn, activation="geglu_tanh" if gated else "relu")
    first = BlockLayer(hidden=hidden, attention=attention, mlp=mlp, norm_eps=1e-6)
    reader = replace(
        first,
        attention=replace(attention, mask="causal"),
        cross_attention=replace(attention, relative_buckets=0),
    )
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden)
    towers = (
        tower(
            "encoder",
            embedding,
            *_stack(first, blocks),
            NormLayer(hidden=hidden, norm_eps=1e-6),
            seq_len=encoder_tokens,
        ),
        tower("decoder", embedding, *_stack(reader, blocks), HeadLayer(hidden=hidden, vocab=vocab)),
    )
    return ModelSpec(
        name="t5",
        towers=towers,
        edges=(TowerEdge(source="encoder", target="decoder"),),
        tie_embeddings=True,
        shared_embedding=True,
    )


def _stack(first: BlockLayer, count: int) -> tuple[BlockLayer, ...]:
    assert isinstance(first.attention, Attention)
    later = replace(first.attention, relative_buckets=0, shared_bias=True)
    return (first, *[replace(first, attention=later)] * (count - 1))


@dataclass(frozen=True, kw_only=True)
class FamilyCase:
    """A plan of any model: ``strategies`` is one for all layers or one each.

    ``boundaries`` are the first layers of the chunks after the first. ``micro_batch`` counts the
    samples
    of a micro-batch over all replicas.
    """

    name: str
    model: ModelSpec
    strategies: LayerStrategy | Sequence[LayerStrategy] = PLAIN
    ranks: int = 4
    stages: int = 1
    kind: ScheduleKind = "1f1b"
    boundaries: tuple[int, ...] = ()
    global_batch: int = 8
    micro_batch: int = 4
    seq_len: int = 16
    dtype: str = "fp32"
    flash: bool = True
    adapters: Lora | None = None

    def strategy(self, index: int) -> LayerStrategy:
        """A layer's; only blocks recompute."""
        given = self.strategies
        own = given if isinstance(given, LayerStrategy) else given[index]
        layers = self.model.layers()
        return own if isinstance(layers[index], BlockLayer) else replace(own, recompute="none")

    def plan(self) -> Plan:
        """The plan, checked."""
        places = [
            (tower.name, number)
            for tower in self.model.towers
            for number in range(tower.layer_count)
        ]
        edges = (0, *self.boundaries, len(places))
        chunks = [
            tuple(
                LayerPlan(layers=(places[i][0], *[places[i][1]] * 2), strategy=self.strategy(i))
                for i in range(first, end)
            )
            for first, end in pairwise(edges)
        ]
        width, each = self.ranks // self.stages, len(chunks) // self.stages
        stages = tuple(
            Stage(
                devices=(StageDevices(device_group="cpu", first_rank=s * width, count=width),),
                virtual_stages=tuple(
                    chunks[chunk_position(self.kind, s, v, self.stages)] for v in range(each)
                ),
            )
            for s in range(self.stages)
        )
        schedule = Schedule(
            kind=self.kind,
            micro_batch=self.micro_batch // self.strategy(0).data_parallel(width),
            microbatches=self.global_batch // self.micro_batch,
        )
        workload = Workload(
            global_batch=self.global_batch,
            seq_len=self.model.towers[-1].seq_len or self.seq_len,
            dtype=DtypeRecord.from_shorthand(self.dtype),
            trainable=self.adapters or "full",
        )
        plan = Plan(
            models={"main": self.model},
            cluster=cpu_cluster(self.ranks),
            workloads={"main": workload},
            programs=(Program(stages=stages, schedule=schedule),),
        )
        violations = plan.check()
        assert not violations, (self.name, [str(v) for v in violations])
        return plan
