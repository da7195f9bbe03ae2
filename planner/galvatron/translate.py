"""Translate Galvatron's decisions to a Plan.

Tensor parallelism is Megatron's with sequence parallelism; ZeRO shards over the ranks of equal
weights, except with one replica. Layers other than blocks (embedding, head, norms) take the
strategy of the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from ...costmodel.galvatron.job import GalvatronJob
from ...costmodel.galvatron.plan_cost import GalvatronPlan
from ...costmodel.galvatron.strategy import GalvatronStrategy
from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.model.model_spec import BlockLayer, Layer, ModelSpec
from ...spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from ...spec.rules.layer_rules import layer_violation
from ...spec.strategy import LayerStrategy, Sharding
from ...spec.workload.workload import Workload
from .options import LayerRole, Legal


def layer_strategy(strategy: GalvatronStrategy) -> LayerStrategy:
    """One layer's decisions."""
    ranks = strategy.shard_ranks if strategy.dp > 1 else 1
    shard = Sharding(parameters=ranks if strategy.zero3 else 1, gradients=ranks, optimizer=ranks)
    return LayerStrategy(
        tp=strategy.degree,
        sequence_parallel=(
            "none" if strategy.degree == 1 else "megatron" if strategy.tp > 1 else "ulysses"
        ),
        shard=shard,
        recompute="full" if strategy.recompute else "none",
    )


def legality(model: ModelSpec, workload: Workload, job: GalvatronJob) -> Legal:
    """Legality predicate of strategies of a model's blocks and other layers."""
    by_role: dict[LayerRole, list[tuple[Layer, int]]] = {"layers": [], "ends": []}
    for tower in model.towers:
        for run in tower.layers:
            role: LayerRole = "layers" if isinstance(run.layer, BlockLayer) else "ends"
            by_role[role].append((run.layer, tower.seq_len or workload.seq_len))

    def legal(role: LayerRole, strategy: GalvatronStrategy) -> bool:
        translated, ranks = layer_strategy(strategy), job.devices // strategy.pp
        return all(
            layer_violation(layer, translated, ranks, strategy.dp, tokens) is None
            for layer, tokens in by_role[role]
        )

    return legal


def plan_of(
    model: ModelSpec, cluster: ClusterSpec, workload: Workload, decisions: GalvatronPlan
) -> Plan:
    """Plan with Galvatron's decisions."""
    group, stage_count = cluster.groups[0], len(decisions.division)
    ranks = group.device_count // stage_count
    placed = list(_place_layers(model, decisions))
    schedule = Schedule(
        micro_batch=workload.global_batch // decisions.microbatches // decisions.ends.dp,
        microbatches=decisions.microbatches,
    )
    stages = tuple(
        Stage(
            devices=(
                StageDevices(device_group=group.name, first_rank=number * ranks, count=ranks),
            ),
            virtual_stages=(_layer_plans([layer for layer in placed if layer.stage == number]),),
        )
        for number in range(stage_count)
    )
    return Plan(
        models={"main": model},
        cluster=cluster,
        workloads={"main": workload},
        programs=(Program(stages=stages, schedule=schedule),),
    )


class _PlacedLayer(NamedTuple):
    """Stage, tower, number in the tower and strategy of a layer."""

    stage: int
    tower: str
    number: int
    strategy: LayerStrategy


def _place_layers(model: ModelSpec, decisions: GalvatronPlan) -> Iterator[_PlacedLayer]:
    """Place every layer; others join the block behind, or the last one."""
    stages = [number for number, count in enumerate(decisions.division) for _ in range(count)]
    blocks, ends = 0, layer_strategy(decisions.ends)
    for tower in model.towers:
        for number, layer in enumerate(tower.expand()):
            stage = stages[min(blocks, len(stages) - 1)]
            if isinstance(layer, BlockLayer):
                strategy = layer_strategy(decisions.layers[blocks])
                yield _PlacedLayer(stage, tower.name, number, strategy)
                blocks += 1
            else:
                yield _PlacedLayer(stage, tower.name, number, ends)


def _layer_plans(placed: list[_PlacedLayer]) -> tuple[LayerPlan, ...]:
    plans = []
    for (tower, strategy), run in groupby(placed, key=lambda p: (p.tower, p.strategy)):
        numbers = [layer.number for layer in run]
        plans.append(LayerPlan(layers=(tower, numbers[0], numbers[-1]), strategy=strategy))
    return tuple(plans)
