"""Seeded random spaces for the oracle: small models, odd clusters, restrictions, memory caps."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from generators.tower_cases import encoder_decoder, images_in_text
from oracles.brute_force import RECOMPUTES, Answer, Restriction, Space, Value, plan_count

from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.datasets.catalogue.device import CPU, device
from shardwright.datasets.catalogue.stack import stack
from shardwright.spec.choices import OVERLAPS, AttentionImpl
from shardwright.spec.cluster.cluster_spec import (
    ClusterSpec,
    DeviceGroup,
    LinkLevel,
    MemoryTiers,
)
from shardwright.spec.cluster.machine_profile import CollectiveRow, KernelRow, MachineProfile
from shardwright.spec.cluster.stack_spec import StackLimits, StackSpec
from shardwright.spec.model.experts import experts_of
from shardwright.spec.model.model_spec import (
    Attention,
    BlockLayer,
    EmbeddingLayer,
    HeadLayer,
    LayerRun,
    Mlp,
    ModelSpec,
    Moe,
    Tower,
)
from shardwright.spec.schedules.stage_order import ALL_KINDS
from shardwright.spec.workload.workload import DtypeRecord, Workload

LEAST_PLANS, MOST_PLANS = 500, 6000
PLENTY_BYTES = 2**50
SHARD_NAMES = ("zero0", "zero1", "zero2", "zero3", "hsdp:2", "hsdp:3")

DRAWN_DEVICES = (
    "V100-SXM-16GB",
    "V100-SXM-32GB",
    "A100-SXM-40GB",
    "A100-SXM-80GB",
    "A100-PCIE-80GB",
    "A800-SXM-80GB",
    "H100-SXM-80GB",
    "H100-SXM-96GB",
    "H100-PCIE-80GB",
    "H800-SXM-80GB",
    "H200-SXM-141GB",
    "B200-SXM-180GB",
    "T4-16GB",
    "L4-24GB",
    "A10-24GB",
    "A10G-24GB",
    "RTX-3090-24GB",
    "RTX-4090-24GB",
    "RTX-A6000-48GB",
    "RTX-6000-Ada-48GB",
    "L40S-48GB",
    "RTX-PRO-6000-96GB",
    "B300-SXM-270GB",
    "GB200-186GB",
    "GB300-279GB",
    "MI250X-64GB",
    "MI300X-192GB",
)
"""Accelerators drawn: fixed, so that no seed moves with the catalogue."""


def random_model(source: random.Random, blocks: int) -> ModelSpec:
    """GPT-like (learned positions, tied, layer norm, GELU) or Llama-like; blocks may differ."""
    gpt = source.random() < 0.5
    heads = source.choice([4, 6, 8, 12, 16])
    head_dim = source.choice([32, 64, 128])
    hidden = heads * head_dim
    kv_heads = heads if gpt else source.choice([d for d in (2, 4, heads) if heads % d == 0])
    norm = "layernorm" if gpt else "rmsnorm"
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary=not gpt,
        qkv_bias=gpt,
        out_bias=gpt,
        qk_norm=not gpt and source.random() < 0.2,
    )
    ffn = hidden * source.choice([2, 3, 4])
    mlp = Mlp(ffn=ffn, activation="gelu_tanh" if gpt else "swiglu", bias=gpt)
    block = BlockLayer(hidden=hidden, attention=attention, mlp=mlp, norm=norm)
    runs = [LayerRun(layer=block, count=blocks)]
    if source.random() < 0.35:
        sparse = replace(block, mlp=random_experts(source, mlp))
        runs = [LayerRun(layer=sparse, count=blocks)]
        if blocks > 1 and source.random() < 0.5:
            runs = [LayerRun(layer=block), LayerRun(layer=sparse, count=blocks - 1)]
    elif blocks > 1 and source.random() < 0.3:
        wide = replace(block, mlp=replace(mlp, ffn=2 * ffn))
        runs = [LayerRun(layer=block), LayerRun(layer=wide, count=blocks - 1)]
        source.shuffle(runs)
    vocab = source.choice([1000, 8192, 32000, 50257])
    embedding = EmbeddingLayer(vocab=vocab, hidden=hidden, positions=4096 if gpt else 0)
    head = HeadLayer(hidden=hidden, vocab=vocab, norm=norm)
    layers = (LayerRun(layer=embedding), *runs, LayerRun(layer=head))
    tied = source.random() < (0.8 if gpt else 0.2)
    return ModelSpec(
        name="random", towers=(Tower(name="text", layers=layers),), tie_embeddings=tied
    )


def random_towers(source: random.Random) -> ModelSpec:
    """An encoder with its decoder, tied or not, or images in a text."""
    if source.random() < 0.5:
        return images_in_text(1, 1)
    return encoder_decoder(1, 1, tied=source.random() < 0.5)


def random_experts(source: random.Random, mlp: Mlp) -> Moe:
    """Experts in the place of an MLP, now and then with shared ones."""
    experts = source.choice([4, 6, 8, 12])
    return Moe(
        experts=experts,
        topk=source.choice([1, 2, 4]),
        ffn=mlp.ffn // 2,
        activation=mlp.activation,
        shared_ffn=source.choice([0, 0, mlp.ffn]),
    )


def random_cluster(source: random.Random, device_count: int | None = None) -> ClusterSpec:
    """One to six devices of one catalogue kind in one or more nodes, with typed link rates."""
    count = device_count or source.choice([1, 2, 3, 4, 4, 4, 5, 6, 6])
    per_node = source.choice([d for d in range(1, count + 1) if count % d == 0])
    name = CPU if source.random() < 0.15 else source.choice(DRAWN_DEVICES)
    group = DeviceGroup(
        name="main",
        device=name,
        node="typed",
        nodes=count // per_node,
        devices_per_node=per_node,
        memory=MemoryTiers(hbm_bytes=PLENTY_BYTES),
    )
    inner = LinkLevel(
        level="intra_node",
        group_size=per_node,
        fabric=source.choice(["NVLink2", "NVLink3", "NVLink4", "PCIe4"]),
        bandwidth_bytes_per_s=10 ** source.uniform(9.5, 11.7),
        latency_s=source.choice([None, 10 ** source.uniform(-6, -4.5)]),
    )
    if per_node == count:
        return ClusterSpec(groups=(group,), levels=(inner,))
    outer = LinkLevel(
        level="intra_rack",
        group_size=count,
        fabric=source.choice(["8x400G-IB", "8x200G-IB", "1x100G-ETH"]),
        bandwidth_bytes_per_s=10 ** source.uniform(8.5, 10.7),
        latency_s=source.choice([None, 10 ** source.uniform(-5.5, -4)]),
        oversubscription=source.choice([1.0, 1.0, 2.0]),
    )
    return ClusterSpec(groups=(group,), levels=(inner, outer))


def unlimited_stack(name: str) -> StackSpec:
    """A stack without the limits of what it can run: every plan is in its space."""
    return replace(stack(name), limits=StackLimits())


def random_stack(source: random.Random, cluster: ClusterSpec) -> StackSpec:
    """One of the bundled stacks with an overlap drawn, attention as the device allows."""
    chosen = unlimited_stack(source.choice(["shardwright", "shardwright", "megatron"]))
    flash = device(cluster.groups[0].device).flash_attention and source.random() < 0.7
    attention: AttentionImpl = "flash" if flash else "unfused"
    return replace(chosen, attention=attention).with_overlap(source.choice(OVERLAPS))


def random_workload(source: random.Random, cluster: ClusterSpec) -> Workload:
    dtypes = [d for d in device(cluster.groups[0].device).dtypes if d != "tf32"]
    return Workload(
        global_batch=source.choice([2, 4, 6, 8, 8, 12, 16]),
        seq_len=source.choice([256, 512, 1024, 2048]),
        dtype=DtypeRecord.from_shorthand(source.choice(dtypes)),
        gradient_clip_norm=source.choice([1.0, None]),
    )


def random_profile(source: random.Random, cluster: ClusterSpec) -> MachineProfile | None:
    """Made-up measurements: always for cores, now and then for other devices."""
    is_cpu = cluster.groups[0].device == CPU
    if not is_cpu and source.random() > 0.1:
        return None
    rate, wire = 10 ** source.uniform(10, 13), 10 ** source.uniform(8.5, 10.5)
    kernels = [
        KernelRow(
            op="matmul",
            shape=shape,
            dtype=dtype,
            flops=2 * shape[0] * shape[1] * shape[2],
            traffic_bytes=sum(shape),
            time_s=2 * shape[0] * shape[1] * shape[2] / rate * source.uniform(1, 3),
        )
        for dtype in ("fp32", "bf16", "fp16")
        for shape in itertools.product((64, 4096), repeat=3)
    ]
    kernels += [
        KernelRow(
            op="add",
            shape=(size,),
            dtype=dtype,
            traffic_bytes=size,
            time_s=size / wire * source.uniform(0.3, 1) + 1e-6,
        )
        for dtype in ("fp32", "bf16", "fp16")
        for size in (2**12, 2**18, 2**24)
    ]
    collectives = [
        CollectiveRow(
            kind=kind,
            ranks=ranks,
            payload_bytes=size,
            time_s=size / wire * source.uniform(1, 2) + 1e-5,
        )
        for kind in source.sample(("all_reduce", "all_gather", "reduce_scatter", "send"), 3)
        for ranks in source.sample(range(2, 7), 3)
        for size in (2**10, 2**20, 2**26)
    ]
    host = ("kernel", "collective", "unit", "message", "step")
    return MachineProfile(
        fingerprint="made up",
        machine={},
        ranks=cluster.device_count,
        measured_at="never",
        duration_s=1.0,
        kernels=tuple(kernels),
        collectives=tuple(collectives),
        host_s={name: 10 ** source.uniform(-6, -3.5) for name in host},
    )


def random_restrictions(source: random.Random, layers: int, devices_: int) -> list[Restriction]:
    """Axes cut to some of their values, now and then only on a range of layers."""
    found = []
    axes: dict[str, tuple[Value, ...]] = {
        "tp": tuple(range(1, devices_ + 1)),
        "sp": ("none", "megatron", "ulysses"),
        "cp": tuple(range(1, devices_ + 1)),
        "ep": tuple(range(1, devices_ + 1)),
        "etp": tuple(range(1, devices_ + 1)),
        "shard": SHARD_NAMES,
        "recompute": RECOMPUTES,
        "pp": tuple(range(1, devices_ + 1)),
        "vpp": tuple(range(1, layers + 1)),
        "schedule": ALL_KINDS,
        "micro_batch": (1, 2, 3, 4, 6, 8),
        "dp": tuple(range(1, devices_ + 1)),
    }
    for axis, values in axes.items():
        if source.random() < 0.55:
            continue
        kept = source.sample(values, source.randint(1, max(1, len(values) - 1)))
        span = None
        if axis in ("tp", "cp", "sp", "shard", "recompute") and source.random() < 0.4:
            first = source.randrange(layers)
            span = (first, source.randrange(first, layers))
            kept = kept[:1]
        found.append(Restriction(axis=axis, allowed=tuple(sorted(kept, key=str)), layers=span))
    return found


def random_space(seed: int, most: int = MOST_PLANS) -> Space:
    """A space of LEAST_PLANS to ``most`` legal plans, memory not yet capped."""
    source = random.Random(f"space {seed}")
    while True:
        blocks = source.choice([1, 2, 2, 3])
        cluster = random_cluster(source)
        towers = source.random() < 0.1
        model = random_towers(source) if towers else random_model(source, blocks)
        space = Space(
            model=model,
            cluster=cluster,
            workload=random_workload(source, cluster),
            stack=random_stack(source, cluster),
            profile=random_profile(source, cluster),
        )
        for _ in range(12):
            restrictions = random_restrictions(source, len(model.layers()), cluster.device_count)
            limited = replace(space, restrictions=tuple(restrictions))
            if LEAST_PLANS <= plan_count(limited, most) <= most:
                return _with_chunks(limited, random.Random(f"chunks {seed}"), most)


def _with_chunks(space: Space, source: random.Random, most: int) -> Space:
    """The space, half the time with chunks of experts' rows to choose among, if it may grow."""
    words = ("none", *source.sample(("2/2", "1/2", "4/2", "2/4"), 1))
    drawn = Restriction(axis="expert_pipelining", allowed=words)
    larger = replace(space, restrictions=(*space.restrictions, drawn))
    has_experts = any(experts_of(layer) is not None for layer in space.model.layers())
    fits = has_experts and source.random() < 0.5 and plan_count(larger, most) <= most
    return larger if fits else space


def random_cap(source: random.Random, answer: Answer, rule: MemoryRule) -> int:
    """A memory capacity: mostly one under which the fastest plan does not fit, sometimes ample."""
    needs = sorted(p.reserved_bytes * rule.margin for p in answer.plans)
    fastest = min(answer.plans, key=lambda p: (p.step_time_s, p.reserved_bytes))
    ceiling = fastest.reserved_bytes * rule.margin
    below = [need for need in needs if need < ceiling]
    if source.random() < 0.15 or not below:
        return int(needs[-1]) + 1
    place = below[int(len(below) * source.random() ** 1.5)]
    return int(place) + 1
