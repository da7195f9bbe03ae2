"""Rules for stages shared by several device groups.

Weights are split inside each device group, states are replicated or sharded over all ranks, and
gradients summed over all of them, weighted by samples. So device groups may differ in their share
of samples, recomputation and techniques, but not in the slice that a rank holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.layers import Layer
from ..parallel.batch_partition import batch_partition_violation, batch_share_violation
from ..strategy import LayerStrategy
from ..technique import Values
from ..technique_values import technique_groups
from ..techniques import TECHNIQUES
from .layer_rules import layer_violation
from .problem import Problem

if TYPE_CHECKING:
    from ..model.model_spec import ModelSpec
    from ..plan.plan import LayerPlan, Program, Stage


def device_problems(stage: Stage) -> Iterator[Problem]:
    """Problems of a stage's device groups, apart from the cluster."""
    names = [devices.device_group for devices in stage.devices]
    for number, name in enumerate(names):
        if name in names[:number]:
            allowed = "a device group once a stage: consecutive devices"
            yield Problem("devices", f"{name} twice", allowed)
    if len(names) == 1 and stage.devices[0].batch_share not in (None, 1.0):
        share = f"batch_share {stage.devices[0].batch_share:g}"
        yield Problem("devices", share, "none where one device group takes the whole batch")


def override_problems(
    stage: Stage, part: LayerPlan, techniques: Values = TECHNIQUES
) -> Iterator[Problem]:
    """Problems of ``by_device_group`` for some layers of a stage."""
    names, ranks = [devices.device_group for devices in stage.devices], stage.device_count
    shared_groups = technique_groups(part.strategy, ranks, techniques)
    for name, override in part.by_device_group.items():
        if len(names) == 1 or name not in names:
            allowed = f"one of {', '.join(names)}" if len(names) > 1 else "no override: one group"
            yield Problem("by_device_group", name, f"{allowed} on this stage")
        elif replace(override, recompute="none", techniques={}) != replace(
            part.strategy, recompute="none", techniques={}
        ):
            allowed = (
                "the stage's own splits and sharding, since device groups hold the layers "
                "together; only recompute and techniques may differ"
            )
            yield Problem("by_device_group", name, allowed)
        elif technique_groups(override, ranks, techniques) != shared_groups:
            allowed = "techniques whose ranks talk to each other on every device group, or on none"
            yield Problem("by_device_group", name, allowed)


def shared_stage_violation(
    layer: Layer, strategy: LayerStrategy, stage: Stage, samples: int, seq_len: int
) -> str | None:
    """Reason why a layer may not run on several groups, or None.

    Args:
        layer: the layer.
        strategy: its decisions on one of the device groups.
        stage: the stage.
        samples: of a micro-batch over the whole stage.
        seq_len: tokens of a sample.
    """
    ranks = stage.device_count
    if reason := batch_partition_violation(stage, strategy, samples):
        return reason
    replicas = strategy.data_parallel(ranks)
    if reason := layer_violation(layer, strategy, ranks, replicas, seq_len):
        return reason
    experts = strategy.ep * strategy.etp
    for devices in stage.devices:
        if devices.count % experts:
            return (
                f"ep x etp {experts} does not divide the {devices.count} ranks of its device groups"
            )
    return None


def tied_stage_violation(model: ModelSpec, program: Program, tables: tuple[int, ...]) -> str | None:
    """Reason why stages may not share one vocabulary table, or None.

    Each rank sums the table's gradient with its counterpart on the other stage.
    """
    starts, start = {}, 0
    for tower in model.towers:
        starts[tower.name], start = start, start + tower.layer_count
    widths = {
        stage.device_count
        for stage in program.stages
        for parts in stage.virtual_stages
        for part in parts
        for name, first, last in [part.layers]
        if any(first <= index - starts[name] <= last for index in tables)
    }
    if len(widths) > 1:
        wide = " and ".join(map(str, sorted(widths)))
        return f"tied embedding and head on stages of {wide} ranks: they need equally many"
    return None


__all__ = [
    "batch_share_violation",
    "device_problems",
    "override_problems",
    "shared_stage_violation",
    "tied_stage_violation",
]
