"""Galvatron's decisions as a plan of ours.

Tensor parallelism is Megatron's with sequence parallelism, Ulysses is ours; ZeRO shards over the
ranks that hold equal weights, but where one replica is all there is. Layers that are no blocks
(embedding, head, norms) have the strategy of the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

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
    """Whether a model's blocks, or its other layers, may be split in some way.

    Args:
        model: the model.
        workload: batch and sequence.
        job: the same as Galvatron's question.
    """
    kinds: dict[LayerRole, list[tuple[Layer, int]]] = {"layers": [], "ends": []}
    for tower in model.towers:
        for run in tower.layers:
            place: LayerRole = "layers" if isinstance(run.layer, BlockLayer) else "ends"
            kinds[place].append((run.layer, tower.seq_len or workload.seq_len))

    def legal(place: LayerRole, strategy: GalvatronStrategy) -> bool:
        ours, ranks = layer_strategy(strategy), job.devices // strategy.pp
        return all(
            layer_violation(layer, ours, ranks, strategy.dp, tokens) is None
            for layer, tokens in kinds[place]
        )

    return legal


def plan_of(
    model: ModelSpec, cluster: ClusterSpec, workload: Workload, found: GalvatronPlan
) -> Plan:
    """The whole plan.

    Args:
        model: the model.
        cluster: of one device group.
        workload: batch and sequence.
        found: Galvatron's decisions for its blocks, in order, and for the rest.
    """
    group, stages = cluster.groups[0], len(found.division)
    ranks = group.device_count // stages
    placed = list(_placed(model, found))
    schedule = Schedule(
        micro_batch=workload.global_batch // found.microbatches // found.ends.dp,
        microbatches=found.microbatches,
    )
    made = tuple(
        Stage(
            devices=(
                StageDevices(device_group=group.name, first_rank=number * ranks, count=ranks),
            ),
            virtual_stages=(_layer_plans([part for part in placed if part[0] == number]),),
        )
        for number in range(stages)
    )
    return Plan(
        models={"main": model},
        cluster=cluster,
        workloads={"main": workload},
        programs=(Program(stages=made, schedule=schedule),),
    )


Placed = tuple[int, str, int, LayerStrategy]
"""Stage, tower, number in the tower, strategy."""


def _placed(model: ModelSpec, found: GalvatronPlan) -> Iterator[Placed]:
    """Every layer with its stage; what is no block lies with the block behind it, or the last."""
    stages = [number for number, count in enumerate(found.division) for _ in range(count)]
    blocks, ends = 0, layer_strategy(found.ends)
    for tower in model.towers:
        for number, layer in enumerate(tower.expand()):
            stage = stages[min(blocks, len(stages) - 1)]
            if isinstance(layer, BlockLayer):
                yield stage, tower.name, number, layer_strategy(found.layers[blocks])
                blocks += 1
            else:
                yield stage, tower.name, number, ends


def _layer_plans(placed: list[Placed]) -> tuple[LayerPlan, ...]:
    """Neighbours of one tower and strategy as one part."""
    found = []
    for (tower, strategy), run in groupby(placed, key=lambda part: (part[1], part[3])):
        numbers = [part[2] for part in run]
        found.append(LayerPlan(layers=(tower, numbers[0], numbers[-1]), strategy=strategy))
    return tuple(found)
