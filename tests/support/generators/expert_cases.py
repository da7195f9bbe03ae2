"""Small models with experts, and plans for them: every shape in one call, always legal."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from generators.plan_cases import cpu_cluster

from shardwright.costmodel.lowering.layer_lowering import LayerShape
from shardwright.datasets.catalogue.stack import stack
from shardwright.datasets.clusters.parse import parse_cluster
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.feed_forward import Mlp, Moe
from shardwright.spec.model.mixers import Attention
from shardwright.spec.model.model_spec import (
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    ModelSpec,
    Tower,
)
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.rules.plan_rules import layer_violation
from shardwright.spec.strategy import LayerStrategy, Sharding
from shardwright.spec.workload.workload import DtypeRecord, Workload

HIDDEN, BATCH, SEQ_LEN = 64, 4, 32
PLAIN: dict[str, Any] = {"experts": 8, "topk": 2, "ffn": 48}
MIXTURES = [
    Moe(**PLAIN),
    Moe(**PLAIN, activation="gelu"),
    Moe(**PLAIN, shared_ffn=32, shared_gate=True),
    Moe(**PLAIN, shared_ffn=32, score="sigmoid", groups=4, groups_per_token=2),
    Moe(**PLAIN, bias=True, router_bias=True),
    Moe(**PLAIN, capacity_factor=1.5),
    Moe(**PLAIN, capacity_factor=0.7),
    Moe(**PLAIN, latent=32, bias=True),
    Moe(**PLAIN, shared_ffn=32, score="sigmoid", weigh="inputs"),
    Moe(experts=6, topk=3, ffn=32),
]


def block_of(mlp: Mlp | Moe, hidden: int = HIDDEN) -> BlockLayer:
    """A block around a feed-forward part."""
    return BlockLayer(
        hidden=hidden, attention=Attention(heads=8, kv_heads=4, head_dim=hidden // 8), mlp=mlp
    )


def splits(layer: BlockLayer, ranks: int) -> list[LayerStrategy]:
    """Every legal tp, sequence parallelism, ep and etp of a layer on so many ranks."""
    degrees = [d for d in range(1, ranks + 1) if ranks % d == 0]
    found = []
    for tp, ep, etp in itertools.product(degrees, repeat=3):
        for sp in ("none", "megatron"):
            strategy = LayerStrategy(tp=tp, sequence_parallel=sp, ep=ep, etp=etp)  # type: ignore[arg-type]
            if layer_violation(layer, strategy, ranks, BATCH * ranks, SEQ_LEN) is None:
                found.append(strategy)
    return found


def shape_of(strategy: LayerStrategy, name: str = "shardwright", **fields: Any) -> LayerShape:
    """A layer's micro-batch of BATCH samples a rank under a stack."""
    plain = {
        "strategy": strategy,
        "before": None,
        "batch": BATCH,
        "seq_len": SEQ_LEN,
        "dtype": "bf16",
        "stack": stack(name),
    }
    return LayerShape(**(plain | fields))


def model_of(moe: Moe, blocks: int = 4, dense: int = 1, hidden: int = HIDDEN) -> ModelSpec:
    """A decoder whose first ``dense`` blocks have an MLP and the others experts."""
    mlp = Mlp(ffn=2 * hidden)
    runs = [LayerRun(layer=EmbeddingLayer(vocab=128, hidden=hidden))]
    if dense:
        runs.append(LayerRun(layer=block_of(mlp, hidden), count=dense))
    runs += [
        LayerRun(layer=block_of(moe, hidden), count=blocks - dense),
        LayerRun(layer=HeadLayer(hidden=hidden, vocab=128)),
    ]
    return ModelSpec(name="experts", towers=(Tower(name="text", layers=tuple(runs)),))


@dataclass(frozen=True, kw_only=True)
class ExpertCase:
    """A plan of one stage in short; ep and etp go to the layers that have experts."""

    model: ModelSpec
    strategy: LayerStrategy
    ranks: int = 8
    cluster: str | None = "8xH100"
    shard: str = "zero0"
    micro_batch: int = 1
    microbatches: int = 2
    seq_len: int = SEQ_LEN
    dtype: str = "bf16"

    def plan(self) -> Plan:
        """The plan, checked."""
        layers = self.model.layers()
        samples = self.micro_batch * self.strategy.data_parallel(self.ranks)
        stage = Stage(
            devices=(
                StageDevices(device_group=self._cluster().groups[0].name, first_rank=0,
                             count=self.ranks),
            ),
            virtual_stages=(
                tuple(
                    LayerPlan(layers=("text", i, i), strategy=self._strategy(layer))
                    for i, layer in enumerate(layers)
                ),
            ),
        )  # fmt: skip
        plan = Plan(
            models={"main": self.model},
            cluster=self._cluster(),
            workloads={
                "main": Workload(
                    global_batch=samples * self.microbatches,
                    seq_len=self.seq_len,
                    dtype=DtypeRecord.from_shorthand(self.dtype),
                )
            },
            programs=(
                Program(
                    stages=(stage,),
                    schedule=Schedule(
                        kind="1f1b",
                        micro_batch=self.micro_batch,
                        microbatches=self.microbatches,
                    ),
                ),
            ),
        )
        assert not plan.check(), [str(v) for v in plan.check()]
        return plan

    def _cluster(self) -> ClusterSpec:
        return (
            cpu_cluster(self.ranks) if self.cluster is None else parse_cluster(self.cluster).cluster
        )

    def _strategy(self, layer: Any) -> LayerStrategy:
        found = self.strategy
        if experts_of(layer) is None:
            found = replace(found, ep=1, etp=1)
        if not isinstance(layer, BlockLayer):
            found = replace(found, recompute="none")
        same = found.state_ranks(self.ranks)
        return replace(found, shard=Sharding.from_text(self.shard, same))
