"""Plans whose steps are timed.

Small, legal, and over exactly the ranks at work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...datasets.catalogue.device import CPU
from ...datasets.clusters.parse import parse_cluster
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.model.model_spec import (
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    Tower,
)
from ...spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.workload.workload import DtypeRecord, Workload

SMALL, LARGE = 64, 256
CUDA_SMALL, CUDA_LARGE = 256, 2048
"""On a GPU: where launches take longer than kernels, and where they do not."""
VOCAB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A plan to time; ``hidden`` is also its sequence length."""

    blocks: int = 4
    hidden: int = SMALL
    shard: str = "zero0"
    tp: int = 1
    stages: int = 1
    microbatches: int = 1


def probes(ranks: int, coarse: bool, device: str = CPU) -> list[Probe]:
    """Probes with different kernel seconds and counts of kernels, passes and collectives."""
    cpu_probes = _probes(ranks, coarse)
    if device == CPU:
        return cpu_probes
    widths = {SMALL: CUDA_SMALL, LARGE: CUDA_LARGE, 2 * LARGE: 2 * CUDA_LARGE}
    return [replace(probe, hidden=widths[probe.hidden]) for probe in cpu_probes]


def _probes(ranks: int, coarse: bool) -> list[Probe]:
    plans = [
        Probe(),
        Probe(hidden=LARGE, microbatches=2),
        Probe(shard="zero3" if ranks > 1 else "zero0", microbatches=4),
        Probe(blocks=12),
        Probe(microbatches=4),
        Probe(hidden=LARGE, blocks=8),
    ]
    split = _smallest_prime_divisor(ranks)
    can_split = ranks > 1 and _heads(SMALL) % split == 0
    if can_split:
        plans.append(Probe(tp=split))
    if ranks > 1:
        plans.append(Probe(shard="zero3"))
    if not coarse:
        plans += [Probe(blocks=12, microbatches=4), Probe(blocks=1, microbatches=8)]
        plans += [Probe(hidden=2 * LARGE), Probe(hidden=LARGE, microbatches=4)]
    if not coarse and ranks > 1:
        plans.append(Probe(shard="zero2", microbatches=4))
    if not coarse and can_split:
        plans.append(Probe(tp=split, blocks=8, microbatches=2))
        plans.append(Probe(tp=split, hidden=LARGE))
    return plans


def message_probe(ranks: int, device: str = CPU) -> Probe | None:
    """A probe of two stages.

    None if the ranks do not make two.
    """
    if ranks % 2:
        return None
    hidden = SMALL if device == CPU else CUDA_SMALL
    return Probe(hidden=hidden, stages=2, microbatches=8)


def _smallest_prime_divisor(number: int) -> int:
    return next((n for n in range(2, number) if number % n == 0), number)


def _heads(hidden: int) -> int:
    return max(4, hidden // 32)


def probe_plan(probe: Probe, ranks: int, device: str = CPU) -> Plan:
    """A probe's plan on this machine: fp32 on cores, else bf16.

    Raises:
        ValueError: it would break a rule or leave ranks idle, whose pool would then wait.
    """
    plan = _build(probe, ranks, device)
    errors = [f"{violation.path}: {violation.message}" for violation in plan.check()]
    if ranks % probe.stages:
        errors.append(f"{probe.stages} stages leave some of {ranks} ranks idle")
    if errors:
        raise ValueError(f"{probe}: {errors[0]}")
    return plan


def _build(probe: Probe, ranks: int, device: str) -> Plan:
    width = ranks // probe.stages
    strategy = LayerStrategy(tp=probe.tp, shard=Sharding.from_text(probe.shard, width // probe.tp))
    layers = probe.blocks + 2
    boundaries = [round(i * layers / probe.stages) for i in range(probe.stages + 1)]
    stages = tuple(
        Stage(
            devices=(StageDevices(device_group="main", first_rank=s * width, count=width),),
            virtual_stages=(
                (
                    LayerPlan(
                        layers=("text", boundaries[s], boundaries[s + 1] - 1), strategy=strategy
                    ),
                ),
            ),
        )
        for s in range(probe.stages)
    )
    samples = width // probe.tp
    batch = samples * probe.microbatches
    return Plan(
        models={"main": _model(probe)},
        cluster=local_ranks(ranks, device),
        workloads={
            "main": Workload(
                global_batch=batch,
                seq_len=probe.hidden,
                dtype=DtypeRecord.from_shorthand("fp32" if device == CPU else "bf16"),
            )
        },
        programs=(
            Program(
                stages=stages,
                schedule=Schedule(micro_batch=1, microbatches=probe.microbatches),
            ),
        ),
    )


def local_ranks(ranks: int, device: str = CPU) -> ClusterSpec:
    """The cluster of every probe: ``ranks`` ranks of this machine."""
    text = f"local:{ranks}" if device == CPU else f"1x{ranks}x{device}"
    return parse_cluster(text).cluster


def _model(probe: Probe) -> ModelSpec:
    hidden, heads = probe.hidden, _heads(probe.hidden)
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads)
    block = BlockLayer(hidden=hidden, attention=attention, mlp=Mlp(ffn=3 * hidden))
    runs = (
        LayerRun(layer=EmbeddingLayer(vocab=VOCAB, hidden=hidden)),
        LayerRun(layer=block, count=probe.blocks),
        LayerRun(layer=HeadLayer(hidden=hidden, vocab=VOCAB)),
    )
    return ModelSpec(name="probe", towers=(Tower(name="text", layers=runs),))
