"""Small models and plans for tests: every shape in one call, always legal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwright.spec.cluster.cluster_spec import (
    ClusterSpec,
    DeviceGroup,
    LinkLevel,
    MemoryTiers,
)
from shardwright.spec.model.model_spec import (
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    Tower,
)
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.schedules.stage_order import ScheduleKind, chunk_position
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.technique import Values
from shardwright.spec.techniques import TECHNIQUES
from shardwright.spec.workload.number_formats import Dtype
from shardwright.spec.workload.training import Lora
from shardwright.spec.workload.workload import DtypeRecord, Workload

DEVICE_BYTES = 10**12


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A small dense decoder; the defaults are Llama-like."""

    blocks: int = 4
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 64
    vocab: int = 64
    gpt2: bool = False
    qk_norm: bool = False
    tied: bool = False

    def model(self) -> ModelSpec:
        norm = "layernorm" if self.gpt2 else "rmsnorm"
        block = BlockLayer(
            hidden=self.hidden,
            attention=Attention(
                heads=self.heads,
                kv_heads=self.heads if self.gpt2 else self.kv_heads,
                head_dim=self.hidden // self.heads,
                rotary=not self.gpt2,
                qkv_bias=self.gpt2,
                out_bias=self.gpt2,
                qk_norm=self.qk_norm,
            ),
            mlp=Mlp(
                ffn=self.ffn,
                activation="gelu_tanh" if self.gpt2 else "swiglu",
                bias=self.gpt2,
            ),
            norm=norm,
        )
        embedding = EmbeddingLayer(
            vocab=self.vocab, hidden=self.hidden, positions=None if self.gpt2 else 0
        )
        head = HeadLayer(hidden=self.hidden, vocab=self.vocab, norm=norm)
        runs = (
            LayerRun(layer=embedding),
            LayerRun(layer=block, count=self.blocks),
            LayerRun(layer=head),
        )
        towers = (Tower(name="text", layers=runs),)
        return ModelSpec(name="small", towers=towers, tie_embeddings=self.tied)


PLAIN = LayerStrategy()
LLAMA = Sizes()
QWEN3 = Sizes(qk_norm=True)
GPT2 = Sizes(gpt2=True, tied=True)
RANDOM_SIZES = Sizes()


def cpu_cluster(ranks: int) -> ClusterSpec:
    """``ranks`` cores of one machine."""
    group = DeviceGroup(
        name="cpu",
        device="cpu",
        node="local",
        nodes=1,
        devices_per_node=ranks,
        memory=MemoryTiers(hbm_bytes=DEVICE_BYTES),
    )
    level = LinkLevel(level="intra_node", group_size=ranks, fabric="loopback")
    return ClusterSpec(groups=(group,), levels=(level,))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan in short: ``strategies`` is one for all layers or one each.

    ``micro_batch`` is the samples of a micro-batch over all replicas. ``boundaries`` are the first
    layers of the chunks after the first; even by default. ``techniques`` are those that its
    strategies may hold; ``program`` are values of the whole program.
    """

    name: str
    sizes: Sizes = LLAMA
    ranks: int = 4
    strategies: LayerStrategy | Sequence[LayerStrategy] = PLAIN
    stages: int = 1
    chunks: int = 1
    kind: ScheduleKind = "1f1b"
    global_batch: int = 8
    micro_batch: int = 4
    seq_len: int = 16
    dtype: str = "fp32"
    communication: Dtype = "fp32"
    flash: bool = True
    boundaries: tuple[int, ...] = ()
    clip: float | None = 1.0
    adapters: Lora | None = None
    techniques: Values = TECHNIQUES
    program: tuple[tuple[str, Any], ...] = ()

    @property
    def layer_count(self) -> int:
        return self.sizes.blocks + 2

    def layer_strategies(self) -> tuple[LayerStrategy, ...]:
        """One strategy a layer; recomputation only where there is a block."""
        given = self.strategies
        if not isinstance(given, LayerStrategy):
            assert len(given) == self.layer_count
            return tuple(given)
        end = replace(given, recompute="none", techniques={}, ep=1, etp=1)
        return (end, *[given] * self.sizes.blocks, end)

    def plan(self) -> Plan:
        """The plan, checked."""
        strategies = self.layer_strategies()
        width = self.ranks // self.stages
        parts = self.stages * self.chunks
        even = tuple(round(i * self.layer_count / parts) for i in range(1, parts))
        edges = (0, *(self.boundaries or even), self.layer_count)
        chunk_layers = [
            tuple(
                LayerPlan(layers=("text", i, i), strategy=strategies[i])
                for i in range(edges[number], edges[number + 1])
            )
            for number in range(parts)
        ]
        stages = tuple(
            Stage(
                devices=(StageDevices(device_group="cpu", first_rank=s * width, count=width),),
                virtual_stages=tuple(
                    chunk_layers[chunk_position(self.kind, s, v, self.stages)]
                    for v in range(self.chunks)
                ),
            )
            for s in range(self.stages)
        )
        schedule = Schedule(
            kind=self.kind,
            micro_batch=self.micro_batch // strategies[0].data_parallel(width),
            microbatches=self.global_batch // self.micro_batch,
        )
        plan = Plan(
            models={"main": self.sizes.model()},
            cluster=cpu_cluster(self.ranks),
            workloads={
                "main": Workload(
                    global_batch=self.global_batch,
                    seq_len=self.seq_len,
                    dtype=replace(
                        DtypeRecord.from_shorthand(self.dtype), communication=self.communication
                    ),
                    gradient_clip_norm=self.clip,
                    trainable="full" if self.adapters is None else self.adapters,
                )
            },
            programs=(Program(stages=stages, schedule=schedule, techniques=dict(self.program)),),
        )
        violations = plan.check(self.techniques)
        assert not violations, (self.name, [str(v) for v in violations])
        return plan


def sharded(level: str, data_parallel: int, **fields: object) -> LayerStrategy:
    """A strategy with a sharding level by name among ``data_parallel`` ranks."""
    return LayerStrategy(shard=Sharding.from_text(level, data_parallel), **fields)  # type: ignore[arg-type]


def random_strategy(
    random_source: random.Random, width: int, block: bool, heads: int
) -> LayerStrategy:
    """A legal strategy for a stage of ``width`` ranks, all numbers powers of two."""
    tp = random_source.choice([t for t in (1, 2, 4, 8) if t <= min(width, heads)])
    data_parallel = width // tp
    degrees = [1 << i for i in range(data_parallel.bit_length())]
    optimizer = random_source.choice(degrees)
    gradients = random_source.choice([d for d in degrees if d in (1, optimizer)])
    parameters = random_source.choice([d for d in degrees if d in (1, gradients)])
    return LayerStrategy(
        tp=tp,
        sequence_parallel=random_source.choice(["none", "megatron"]) if tp > 1 else "none",
        shard=Sharding(parameters=parameters, gradients=gradients, optimizer=optimizer),
        recompute=random_source.choice(["none", "selective", "full"]) if block else "none",
    )


def random_split(
    random_source: random.Random, width: int, block: bool, heads: int
) -> LayerStrategy:
    """As :func:`random_strategy`, perhaps with a ring, heads exchanged for tokens, or both."""
    plain = random_strategy(random_source, width, block, heads)
    tp = random_source.choice([t for t in (1, 2, 4) if t <= min(width, heads)])
    cp = random_source.choice([c for c in (1, 2, 4) if tp * c <= width])
    parallel = random_source.choice(["none", "megatron", "ulysses"]) if tp > 1 else "none"
    found = replace(plain, tp=tp, cp=cp, sequence_parallel=parallel)
    same = found.state_ranks(width)
    degree = random_source.choice([d for d in (1, 2, 4, 8) if same % d == 0])
    level = random_source.choice([(1, 1), (1, degree), (degree, degree)])
    shard = Sharding(parameters=level[0], gradients=level[1], optimizer=degree)
    return replace(found, shard=shard)


def random_case(
    seed: int,
    ranks: int = 4,
    stages: int | None = None,
    sizes: Sizes = RANDOM_SIZES,
    splits: bool = False,
) -> Case:
    """A plan with a strategy of its own for every layer.

    Args:
        seed: of all choices.
        ranks: a power of two.
        stages: of the pipeline; chosen by the seed if None.
        sizes: heads, hidden and ffn are used; the seed chooses the family.
        splits: whether sequences are split inside attention too.
    """
    source = random.Random(seed)
    if stages is None:
        stages = source.choice([1, 1, 2, 2, 4])
    kinds: list[ScheduleKind] = ["gpipe", "1f1b"] if stages > 1 else ["1f1b"]
    if 1 < stages <= 2:
        kinds.append("interleaved")
    kind = source.choice(kinds)
    chunks = source.choice([2, 3]) if kind == "interleaved" else 1
    width = ranks // stages
    family = source.choice([{}, {"qk_norm": True}, {"gpt2": True}, {"kv_heads": sizes.heads}])
    sizes = replace(sizes, **family)
    heads = sizes.heads if sizes.gpt2 else min(sizes.heads, sizes.kv_heads)
    choose = random_split if splits else random_strategy
    strategies = [
        choose(source, width, 0 < i <= sizes.blocks, heads) for i in range(sizes.blocks + 2)
    ]
    micro_batch = max(4, width)
    return Case(
        name=f"random {seed}",
        sizes=sizes,
        ranks=ranks,
        strategies=strategies,
        stages=stages,
        chunks=chunks,
        kind=kind,
        global_batch=micro_batch * source.choice([2, 4]),
        micro_batch=micro_batch,
        flash=source.random() < 0.5 or any(s.cp > 1 for s in strategies),
        boundaries=_random_cuts(source, sizes.blocks + 2, stages * chunks),
    )


def _random_cuts(source: random.Random, layers: int, parts: int) -> tuple[int, ...]:
    return tuple(sorted(source.sample(range(1, layers), parts - 1)))
