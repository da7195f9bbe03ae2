"""Plans over several device groups in few words."""

from __future__ import annotations

from collections.abc import Sequence

from generators.catalogue_problems import problem

from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.planner.solve.problem import Problem
from shardwright.spec.plan.plan import LayerPlan, Plan, Program, Schedule, Stage, StageDevices
from shardwright.spec.schedules.stage_order import ScheduleKind
from shardwright.spec.strategy import LayerStrategy, Sharding

Part = tuple[str, int, int] | tuple[str, int, int, float]
"""Device group, first device, how many, and their share of the batch."""


def asked(cluster: str, model: str = "gpt2", batch: int = 16, **inputs: object) -> Problem:
    return problem(model, cluster, batch, 512, **inputs)


def strategy(level: str = "zero0", ranks: int = 1, **fields: object) -> LayerStrategy:
    """A strategy sharded over so many ranks that hold the same weights."""
    return LayerStrategy(shard=Sharding.from_text(level, ranks), **fields)  # type: ignore[arg-type]


def mixed_plan(
    asked_: Problem,
    stages: Sequence[Sequence[Part]],
    boundaries: Sequence[int],
    strategies: Sequence[LayerStrategy],
    microbatches: int,
    kind: ScheduleKind = "1f1b",
    by_device_group: dict[str, LayerStrategy] | None = None,
) -> Plan:
    """A plan of one strategy a stage; stage s has layers ``boundaries[s]`` to ``[s + 1]``."""
    name = asked_.model.towers[0].name
    found = tuple(
        Stage(
            devices=tuple(
                StageDevices(
                    device_group=part[0],
                    first_rank=part[1],
                    count=part[2],
                    batch_share=part[3] if len(part) == 4 else None,
                )
                for part in parts
            ),
            virtual_stages=(
                (
                    LayerPlan(
                        layers=(name, boundaries[s], boundaries[s + 1] - 1),
                        strategy=strategies[s],
                        by_device_group=by_device_group or {},
                    ),
                ),
            ),
        )
        for s, parts in enumerate(stages)
    )
    samples = asked_.workload.global_batch // microbatches
    replicas = strategies[0].data_parallel(found[0].device_count)
    schedule = Schedule(
        kind=kind, micro_batch=max(1, samples // replicas), microbatches=microbatches
    )
    return Plan(
        models={"main": asked_.model},
        cluster=asked_.cluster,
        workloads={"main": asked_.workload},
        programs=(Program(stages=found, schedule=schedule),),
    )


def run(asked_: Problem, plan: Plan) -> Simulation:
    """The plan, which must be legal, simulated."""
    assert not plan.check(), [str(v) for v in plan.check()]
    simulation = Simulator.for_plan(plan, asked_.machine, asked_.stack).run(plan)
    assert simulation is not None
    return simulation
