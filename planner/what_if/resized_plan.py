"""The same way of splitting on another number of devices.

Degrees of tensor, pipeline, context and expert parallelism stay, and so does the kind of sharding;
data parallelism grows or shrinks. The global batch is the setting's, in as many micro-batches as
that leaves; a micro-batch shrinks only where it no longer divides the batch. Devices stay idle
where no larger degree of data parallelism divides the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...spec.numbers import divisors
from ...spec.plan.plan import LayerPlan, Plan, Program, Stage
from ...spec.strategy import LayerStrategy, Sharding


def resizes(plan: Plan) -> bool:
    """True if data parallelism can follow the number of devices.

    All stages hold equally many devices of one group, and no order of passes is written out.
    """
    stages = plan.program.stages
    return (
        len(plan.cluster.groups) == 1
        and plan.program.schedule.actions is None
        and all(len(stage.devices) == 1 for stage in stages)
        and len({stage.device_count for stage in stages}) == 1
    )


def least_devices(plan: Plan) -> int:
    """Devices that the plan needs with the least data parallelism."""
    return len(plan.program.stages) * _unit(plan)


def resized_programs(plan: Plan, devices: int, global_batch: int) -> Iterator[Program]:
    """The plan's program with every degree of data parallelism, the largest first.

    Args:
        plan: one that :func:`resizes`.
        devices: at most so many are used.
        global_batch: samples of a step.
    """
    program, unit = plan.program, _unit(plan)
    widths = {strategy.width for strategy in plan.layer_strategies()}
    first = program.first_strategy.width
    for count in range(devices // len(program.stages) // unit * unit, 0, -unit):
        if any(global_batch % (count // width) for width in widths):
            continue
        samples = global_batch // (count // first)
        for micro_batch in reversed(divisors(samples)):
            if micro_batch <= program.schedule.micro_batch:
                schedule = replace(
                    program.schedule,
                    micro_batch=micro_batch,
                    microbatches=samples // micro_batch,
                )
                stages = tuple(_resized(stage, count) for stage in program.stages)
                yield replace(program, stages=stages, schedule=schedule)


def _unit(plan: Plan) -> int:
    """Devices of which every stage holds a multiple, whatever its data parallelism."""
    strategies = plan.layer_strategies()
    return math.lcm(*(s.width for s in strategies), *(s.ep * s.etp for s in strategies))


def _resized(stage: Stage, count: int) -> Stage:
    """The stage on ``count`` devices, behind the resized ones before it."""
    part, was = stage.devices[0], stage.device_count
    devices = replace(part, first_rank=part.first_rank // was * count, count=count)
    chunks = tuple(
        tuple(_resharded(layers, was, count) for layers in parts) for parts in stage.virtual_stages
    )
    return replace(stage, devices=(devices,), virtual_stages=chunks)


def _resharded(layers: LayerPlan, was: int, count: int) -> LayerPlan:
    overrides = {
        name: _strategy(strategy, was, count) for name, strategy in layers.by_device_group.items()
    }
    strategy = _strategy(layers.strategy, was, count)
    return replace(layers, strategy=strategy, by_device_group=overrides)


def _strategy(strategy: LayerStrategy, was: int, count: int) -> LayerStrategy:
    shard, ranks, now = strategy.shard, strategy.state_ranks(was), strategy.state_ranks(count)

    def degree(number: int) -> int:
        """All ranks where it was all of them, else the same number, as far as there are ranks."""
        return now if number == ranks > 1 else min(number, now)

    second = shard.secondary_parameters
    resharded = Sharding(
        parameters=degree(shard.parameters),
        secondary_parameters=second if second < now else 1,
        gradients=degree(shard.gradients),
        optimizer=degree(shard.optimizer),
    )
    return replace(strategy, shard=resharded)
