"""ExportablePlan: a plan of one strategy for all layers, as writers of files see it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import BlockLayer, Layer, ModelSpec
from ...spec.plan.plan import Plan
from ...spec.plan.uniform_strategy import freedom
from ...spec.strategy import LayerStrategy
from ...spec.workload.workload import Workload


@dataclass(frozen=True, kw_only=True)
class ExportablePlan:
    """A plan with the strategy of its blocks; ``stack`` priced it.

    Degrees are those of all blocks: a plan with several strategies is made uniform first.
    """

    plan: Plan
    stack: StackSpec

    @cached_property
    def strategy(self) -> LayerStrategy:
        """The strategy that most of the freest layers have."""
        layers, taken = self.plan.model.layers(), self.plan.layer_strategies()
        most = max(freedom(layer) for layer in layers)
        free = [s for layer, s in zip(layers, taken, strict=True) if freedom(layer) == most]
        return Counter(free).most_common(1)[0][0]

    @property
    def model(self) -> ModelSpec:
        """The model."""
        return self.plan.model

    @property
    def workload(self) -> Workload:
        """Batch, sequence and number formats."""
        return self.plan.workload

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Layers in the order of data."""
        return tuple(self.plan.model.layers())

    @property
    def blocks(self) -> list[BlockLayer]:
        """Blocks in the order of data."""
        return [layer for layer in self.layers if isinstance(layer, BlockLayer)]

    @property
    def has_experts(self) -> bool:
        """True if any layer has experts."""
        return any(experts_of(layer) is not None for layer in self.layers)

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return len(self.plan.program.stages)

    @property
    def vpp(self) -> int:
        """Chunks of a stage."""
        return self.plan.program.chunks_per_stage

    @property
    def kind(self) -> str:
        """The schedule."""
        return self.plan.program.schedule.kind

    @property
    def stage_ranks(self) -> int:
        """Devices of a stage."""
        return self.plan.program.stages[0].device_count

    @property
    def devices(self) -> int:
        """Devices at work."""
        return self.pp * self.stage_ranks

    @property
    def dp(self) -> int:
        """Data-parallel degree."""
        return self.strategy.data_parallel(self.stage_ranks)

    @property
    def replicas(self) -> int:
        """Ranks with the same weights."""
        return self.strategy.state_ranks(self.stage_ranks)

    @property
    def shard(self) -> str:
        """The sharding's name among the ranks with the same weights."""
        return self.strategy.shard.level_name(self.replicas) if self.replicas > 1 else "zero0"

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch and replica."""
        return self.plan.program.schedule.micro_batch

    @property
    def microbatches(self) -> int:
        """Micro-batches of a step."""
        return self.plan.program.schedule.microbatches

    @property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Layers of each chunk in the order of data, embedding and head counted."""
        return tuple(
            sum(part.layers[2] - part.layers[1] + 1 for part in parts)
            for _, _, parts in self.plan.program.chunks()
        )

    @property
    def chunk_blocks(self) -> tuple[int, ...]:
        """Blocks of each chunk in the order of data."""
        counts, start = [], 0
        for size in self.chunk_sizes:
            run = self.layers[start : start + size]
            counts.append(sum(isinstance(layer, BlockLayer) for layer in run))
            start += size
        return tuple(counts)

    @property
    def is_even(self) -> bool:
        """True if all chunks have as many blocks, and the ends the rest."""
        return len(set(self.chunk_blocks)) == 1

    @property
    def nodes(self) -> int:
        """Nodes at work."""
        return max(1, self.devices // self._group_width)

    @property
    def devices_per_node(self) -> int:
        """Devices at work on each node."""
        return min(self.devices, self._group_width)

    @property
    def _group_width(self) -> int:
        return self.plan.cluster.groups[0].devices_per_node


def exportable(plan: Plan, stack: StackSpec) -> ExportablePlan:
    """A plan as writers see it.

    Raises:
        InputError: several programs or device groups, or stages of several widths.
    """
    program = plan.program
    allowed = "one program over one device group, in stages of one width"
    if len(plan.programs) > 1 or program.schedule.actions is not None:
        given = "a schedule of its own" if len(plan.programs) == 1 else "several programs"
        raise InputError("plan", given, allowed)
    parts = [part for stage in program.stages for part in stage.devices]
    widths = {stage.device_count for stage in program.stages}
    if len({part.device_group for part in parts}) > 1 or len(parts) > len(program.stages):
        raise InputError("plan", "several device groups", allowed)
    if len(widths) > 1:
        raise InputError("plan", f"stages of {sorted(widths)} devices", allowed)
    return ExportablePlan(plan=plan, stack=stack)
