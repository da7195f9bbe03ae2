"""Seeded random spaces in which an even pipeline is wrong, as Galvatron-BMW has them.

Blocks of several sizes, heads that outweigh blocks, pipelines of two to four stages whose first
ones hold more activations, sharding and recomputation of each layer for itself; the memory cap is
drawn below what the fastest plan needs.
"""

from __future__ import annotations

import random
from dataclasses import replace

from generators.random_spaces import (
    LEAST_PLANS,
    random_cluster,
    random_experts,
    random_model,
    random_profile,
    random_stack,
    random_workload,
)
from oracles.brute_force import RECOMPUTES, Answer, Restriction, Space, plan_count

from shardwright.costmodel.memory.feasibility import MemoryRule
from shardwright.spec.model.model_spec import BlockLayer, HeadLayer, LayerRun, Mlp, ModelSpec

SHARDS = ("zero0", "zero1", "zero2", "zero3")


def uneven_model(source: random.Random, blocks: int) -> ModelSpec:
    """Every block of a size of its own, some with experts; the head heavy for its blocks."""
    base = random_model(source, 1)
    (tower,) = base.towers
    runs: list[LayerRun] = []
    for run in tower.layers:
        layer = run.layer
        if isinstance(layer, BlockLayer):
            plain = layer.mlp if isinstance(layer.mlp, Mlp) else Mlp(ffn=2 * layer.hidden)
            runs += [LayerRun(layer=_block(source, layer, plain)) for _ in range(blocks)]
        elif source.random() < 0.7:
            vocab = source.choice([32000, 128256, 262144])
            runs.append(LayerRun(layer=replace(layer, vocab=vocab)))
        else:
            runs.append(run)
    heads = {run.layer.vocab for run in runs if isinstance(run.layer, HeadLayer)}
    tied = base.tie_embeddings and heads == {run.layer.vocab for run in runs[:1]}  # type: ignore[union-attr]
    return replace(base, towers=(replace(tower, layers=tuple(runs)),), tie_embeddings=tied)


def _block(source: random.Random, layer: BlockLayer, plain: Mlp) -> BlockLayer:
    mlp = replace(plain, ffn=plain.ffn * source.choice([1, 1, 2, 4]))
    return replace(layer, mlp=random_experts(source, mlp) if source.random() < 0.25 else mlp)


def uneven_space(seed: int, most: int) -> Space:
    """A space of ``LEAST_PLANS`` to ``most`` plans of two stages or more, memory not yet capped."""
    source = random.Random(f"uneven space {seed}")
    while True:
        cluster = random_cluster(source, source.choice([2, 2, 3, 4, 4]))
        space = Space(
            model=uneven_model(source, source.choice([2, 2, 3, 3, 4])),
            cluster=cluster,
            workload=random_workload(source, cluster),
            stack=random_stack(source, cluster),
            profile=random_profile(source, cluster),
        )
        for _ in range(12):
            limited = replace(space, restrictions=_restrictions(source, cluster.device_count))
            if LEAST_PLANS <= plan_count(limited, most) <= most:
                return limited


def _restrictions(source: random.Random, devices: int) -> tuple[Restriction, ...]:
    """1F1B or GPipe over several stages, one chunk each; a few values of the layers' axes."""
    recompute = source.sample(RECOMPUTES, source.choice([1, 2, 2, 3]))
    shard = source.sample(SHARDS, source.choice([1, 1, 2]))
    found = [
        Restriction(axis="pp", allowed=tuple(range(2, devices + 1))),
        Restriction(axis="vpp", allowed=(1,)),
        Restriction(axis="schedule", allowed=("1f1b", *source.choice([(), ("gpipe",)]))),
        Restriction(axis="recompute", allowed=tuple(sorted(recompute))),
        Restriction(axis="shard", allowed=tuple(sorted(shard))),
    ]
    if source.random() < 0.6:
        found.append(Restriction(axis="sp", allowed=(source.choice(["none", "megatron"]),)))
    if source.random() < 0.5:
        found.append(Restriction(axis="micro_batch", allowed=(1, source.choice([2, 4]))))
    return tuple(found)


def binding_cap(source: random.Random, answer: Answer, rule: MemoryRule) -> int:
    """A memory capacity under which the fastest plan does not fit, where there is one."""
    fastest = min(answer.plans, key=lambda p: (p.step_time_s, p.reserved_bytes))
    ceiling = fastest.reserved_bytes * rule.margin
    needs = sorted(p.reserved_bytes * rule.margin for p in answer.plans)
    below = [need for need in needs if need < ceiling] or needs
    return int(below[int(len(below) * source.random())]) + 1
