"""Differences between the decisions of two plans, in a few words."""

from __future__ import annotations

from typing import NamedTuple

from ...spec.plan.plan import Plan
from ...spec.plan.shape_text import several
from ...spec.strategy import LayerStrategy
from ...spec.technique import TechniqueValue, Values
from ...spec.techniques import TECHNIQUES


class Difference(NamedTuple):
    """An axis, and its values in both plans (``2/4`` for several).

    If no value shows the difference, ``was`` is empty and ``now`` in words.
    """

    axis: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.axis} {self.was} -> {self.now}" if self.was else f"{self.axis} {self.now}"


def plan_difference(
    was: Plan, now: Plan, techniques: Values = TECHNIQUES
) -> tuple[Difference, ...]:
    """Axes of different values, or only the layers' positions."""
    before, after = _axes(was, techniques), _axes(now, techniques)
    differences = tuple(
        Difference(axis, before[axis], after[axis])
        for axis in before
        if before[axis] != after[axis]
    )
    if differences or _decisions(was) == _decisions(now):
        return differences
    moved = _boundaries(was) != _boundaries(now)
    words = "cut otherwise between the stages" if moved else "with each other's strategies"
    return (Difference("layers", "", words),)


def _boundaries(plan: Plan) -> object:
    return [
        (parts[0].layers[:2], parts[-1].layers[0], parts[-1].layers[2])
        for _, _, parts in plan.program.chunks()
    ]


def _decisions(plan: Plan) -> object:
    program = plan.program
    devices = [[(p.first_rank, p.count) for p in stage.devices] for stage in program.stages]
    chunks = [stage.virtual_stages for stage in program.stages]
    return devices, chunks, program.schedule, program.techniques


def _axes(plan: Plan, techniques: Values) -> dict[str, str]:
    """Values of each axis, in the order of their first layer."""
    program = plan.program
    ranks = program.stages[0].device_count
    strategies = plan.layer_strategies()
    sequence = ("ulysses" if s.ulysses else s.sequence_parallel for s in strategies if s.tp > 1)
    used = sum(stage.device_count for stage in program.stages)
    schedule = program.schedule
    return {
        "devices": str(used),
        "device group": several(p.device_group for s in program.stages for p in s.devices),
        "tp": several(s.tp for s in strategies),
        "pp": str(len(program.stages)),
        "vpp": str(program.chunks_per_stage),
        "cp": several(s.cp for s in strategies),
        "dp": several(s.data_parallel(ranks) for s in strategies),
        "ep": several(s.ep for s in strategies),
        "etp": several(s.etp for s in strategies),
        "shard": several(_shard(s, ranks) for s in strategies),
        "sp": several(sequence) or "none",
        "recompute": several(s.recompute for s in strategies),
        **{t.name: _technique(t, plan, strategies) for t in techniques},
        "schedule": schedule.kind if len(program.stages) > 1 else "-",
        "micro-batch": f"{schedule.micro_batch} x {schedule.microbatches}",
    }


def _technique(technique: TechniqueValue, plan: Plan, strategies: tuple[LayerStrategy, ...]) -> str:
    if technique.program is not None:
        return technique.text_in_program(plan.program.techniques)
    return several(technique.text_of(s) for s in strategies)


def _shard(strategy: LayerStrategy, ranks: int) -> str:
    return strategy.shard.level_name(strategy.state_ranks(ranks))
