"""Process groups of a plan, all made up front.

Making a group is collective over the world, so a group made late inside one stage would hang the
others: every rank makes every stage's groups here, in one order.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...spec.errors import RunError
from ...spec.parallel.batch_partition import IndexRange, batch_partition
from ...spec.parallel.rank_groups import (
    RankGroup,
    context_group,
    exchange_group,
    expert_group,
    expert_groups,
    expert_replica_group,
    expert_routes,
    expert_secondary,
    expert_shard_group,
    expert_tensor_group,
    inner_group,
    replica_group,
    secondary_replicas,
    shard_group,
    stage_groups,
    tensor_group,
)
from ...spec.parallel.sequence_partition import exchanged_tokens
from ...spec.plan.plan import Plan, Stage
from ...spec.plan.stage_messages import ActivationBlock, stage_layouts
from ...spec.plan.technique_groups import plan_reduced_ranks, stage_technique_groups
from ...spec.report.trace_marks import BETWEEN_STAGES
from ...spec.schedules.stage_order import chunk_location
from ...spec.strategy import LayerStrategy
from ...spec.technique import Values
from ...spec.techniques import TECHNIQUES
from ..models.context_parallel.ring_attention import Ring
from ..models.moe.dispatch import ExpertRanks
from ..models.sequence_split import SequenceSplit
from ..models.tensor_parallel import TensorParallel
from ..models.token_layout import token_layout
from .rank_layout import plan_world_size, stage_layout
from .tied_parameters import TiedGroup, shared_parameters, tied_groups
from .token_exchange import TokenExchange, token_exchange

Channel = tuple[bool, bool, int]
"""A channel between stages: forward or backward, towards a higher stage or a lower one, and 0 or 1
for an even or odd stage that forward messages leave there."""


def channel_of(forward: bool, source: int, target: int) -> Channel:
    """Channel of messages from stage ``source`` to stage ``target``."""
    return forward, source < target, (source if forward else target) % 2


def plan_channels(plan: Plan) -> list[Channel]:
    """Channels of a plan's messages, in the creation order of all ranks."""
    stages = plan.program.stages
    positions = len(stages) * len(stages[0].virtual_stages)
    kind = plan.program.schedule.kind
    stages_of = [chunk_location(kind, position, len(stages))[0] for position in range(positions)]
    hops = [(a, b) for a, b in pairwise(stages_of) if a != b]
    channels = {channel_of(True, a, b) for a, b in hops} | {
        channel_of(False, b, a) for a, b in hops
    }
    return sorted(channels)


class ProcessGroups:
    """Process groups and meshes of one rank.

    Args:
        device_type: ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        device_type: str,
        timeout_s: float,
        techniques: Values = TECHNIQUES,
    ) -> None:
        self.rank = rank
        self.device_type = device_type
        self._timeout = timedelta(seconds=timeout_s)
        self.layout = stage_layout(plan)
        world = plan_world_size(plan)
        if dist.get_world_size() != world:
            raise RunError(f"the plan runs on {world} ranks, but {dist.get_world_size()} started")
        self.stage = self._stage_of(rank)
        self.first_rank, self.stage_ranks = self.layout[self.stage]
        self.local_rank = rank - self.first_rank
        self._reduced = [
            plan_reduced_ranks(plan, index, techniques) for index in range(len(self.layout))
        ]
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._made: set[tuple[int, ...]] = set()
        self._meshes: dict[tuple[RankGroup, RankGroup], DeviceMesh] = {}
        self._expert_groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._expert_meshes: dict[tuple[RankGroup, RankGroup], DeviceMesh] = {}
        for index in range(len(plan.program.stages)):
            self._make_stage_groups(plan, index)
            self._make_expert_groups(plan, index)
        self._groups[rank,] = self._new_alone()
        self._expert_groups[rank,] = self._new_alone()
        self.tied = self._make_tied_groups(plan)
        self._channels = self._make_channels(plan)
        self._technique_groups: dict[tuple[str, tuple[int, ...]], dist.ProcessGroup] = {}
        for index in range(len(plan.program.stages)):
            self._make_technique_groups(plan, index, techniques)
        self._stage = plan.program.stages[self.stage]
        self.device_group = _device_groups(self._stage)[self.local_rank]
        self._samples = plan.program.micro_batch_samples
        self._seq_len = plan.workload.seq_len
        self._exchanges: dict[tuple[tuple[int, int], ...], TokenExchange] = {}

    def _make(self, ranks: tuple[int, ...]) -> None:
        if ranks in self._made:
            return
        self._made.add(ranks)
        group = dist.new_group(list(ranks), timeout=self._timeout)
        if self.rank in ranks:
            self._groups[ranks] = group

    def _new_alone(self) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(
            [self.rank], timeout=self._timeout, use_local_synchronization=True
        )
        return group

    def _make_stage_groups(self, plan: Plan, index: int) -> None:
        first, count = self.layout[index]
        layouts = list(stage_layouts(plan, index))
        second = (s for s in layouts if s.shard.secondary_parameters > 1)
        shapes = {*stage_groups(layouts, count, reduced=self._reduced[index])}
        shapes |= {secondary_replicas(s, count) for s in second}
        for shape in [*sorted(shapes), *expert_routes(plan.expert_strategies(index))]:
            for local in range(count):
                if shape.position(local) == 0:
                    self._make(tuple(first + r for r in shape.members(local)))

    def _make_expert_groups(self, plan: Plan, index: int) -> None:
        """Make the groups of experts' states.

        They differ from those of the dense parameters beside them: fully_shard would take
        parameters of one group for one unit.
        """
        first, count = self.layout[index]
        strategies = plan.expert_strategies(index)
        second = (expert_secondary(s, count) for s in dict.fromkeys(strategies))
        shapes = {*expert_groups(strategies, count, self._reduced[index])}
        shapes |= {s[1] for s in second if s is not None}
        for shape in sorted(shapes):
            for local in range(count):
                if shape.position(local) == 0:
                    ranks = tuple(first + r for r in shape.members(local))
                    group = dist.new_group(list(ranks), timeout=self._timeout)
                    if self.rank in ranks:
                        self._expert_groups[ranks] = group

    def _make_technique_groups(self, plan: Plan, index: int, techniques: Values) -> None:
        """Make the techniques' own groups, in the same order on all ranks.

        No two techniques share one, nor one with the layers: their collectives may overlap.
        """
        first, count = self.layout[index]
        for name, shape in stage_technique_groups(plan, index, techniques):
            for local in range(count):
                if shape.position(local) == 0:
                    ranks = tuple(first + r for r in shape.members(local))
                    group = dist.new_group(list(ranks), timeout=self._timeout)
                    if self.rank in ranks:
                        self._technique_groups[name, ranks] = group

    def technique_group(self, name: str, shape: RankGroup) -> dist.ProcessGroup:
        """A technique's own process group of this shape with this rank."""
        members = shape.members(self.local_rank)
        return self._technique_groups[name, tuple(self.first_rank + r for r in members)]

    def _make_tied_groups(self, plan: Plan) -> dict[str, TiedGroup]:
        groups = {}
        for name, stages in shared_parameters(plan).items():
            for group in tied_groups(plan, stages, self.layout):
                if len(group.ranks) > 1:
                    self._make(group.ranks)
                if self.rank in group.ranks:
                    groups[name] = group
        return groups

    def _make_channels(self, plan: Plan) -> dict[Channel, dist.ProcessGroup]:
        """Make one group of all ranks per channel between stages.

        NCCL serializes all messages of a rank in a group. So forward and backward traffic, both
        ways of a ring, and receives and sends need separate groups, lest a message wait behind one
        that is not there yet.
        """
        return {
            channel: dist.new_group(timeout=self._timeout, group_desc=BETWEEN_STAGES)
            for channel in plan_channels(plan)
        }

    def channel(self, forward: bool, source: int, target: int) -> dist.ProcessGroup:
        """Group of messages from rank ``source`` to rank ``target`` of another stage."""
        return self._channels[channel_of(forward, self._stage_of(source), self._stage_of(target))]

    def _stage_of(self, rank: int) -> int:
        return next(i for i, (first, count) in enumerate(self.layout) if rank < first + count)

    def close(self) -> None:
        """Close the groups' connections. Collective, after all work."""
        tables = (self._groups, self._expert_groups, self._channels, self._technique_groups)
        for group in [group for table in tables for group in table.values()]:
            dist.destroy_process_group(group)
        for table in (*tables, self._meshes, self._expert_meshes):
            table.clear()
        self._exchanges.clear()

    def group(self, shape: RankGroup) -> dist.ProcessGroup:
        """Process group of this shape with this rank."""
        members = shape.members(self.local_rank)
        return self._groups[tuple(self.first_rank + r for r in members)]

    def group_of(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """Process group of exactly these ranks."""
        return self._groups[ranks]

    def tensor_parallel(self, strategy: LayerStrategy) -> TensorParallel:
        """Ranks that split a layer's weights; none under Ulysses."""
        if strategy.weight_split == 1:
            return TensorParallel(None, 1, 0, False)
        shape = tensor_group(strategy)
        position = shape.position(self.local_rank)
        return TensorParallel(self.group(shape), strategy.tp, position, strategy.megatron_sp)

    def sequence_split(self, strategy: LayerStrategy, seq_len: int) -> SequenceSplit:
        """This rank's share of a layer's ``seq_len`` tokens."""
        tokens, ring = token_layout(strategy, self.local_rank, seq_len), None
        if strategy.cp > 1:
            shape = context_group(strategy)
            ranks = tuple(self.first_rank + r for r in shape.members(self.local_rank))
            ring = Ring(self.group(shape), ranks, tokens)
        ulysses_group = self.group(tensor_group(strategy)) if strategy.ulysses else None
        return SequenceSplit(tokens, ring, ulysses_group)

    def expert_ranks(self, strategy: LayerStrategy) -> ExpertRanks:
        """Ranks that hold the experts of a layer."""
        ep_group, etp_group = expert_group(strategy), expert_tensor_group(strategy)
        return ExpertRanks(
            ep_group=self.group(ep_group) if ep_group.size > 1 else None,
            ep=ep_group.size,
            ep_rank=ep_group.position(self.local_rank),
            etp_group=self.group(etp_group) if etp_group.size > 1 else None,
            etp=etp_group.size,
            etp_rank=etp_group.position(self.local_rank),
            exchanges_rows=strategy.tp == 1 or strategy.sequence_parallel != "none",
        )

    def samples(self, strategy: LayerStrategy) -> IndexRange:
        """Samples of a micro-batch on this rank in a layer."""
        return self.samples_by_rank(strategy)[self.local_rank]

    def samples_by_rank(self, strategy: LayerStrategy) -> tuple[IndexRange, ...]:
        """Samples of a micro-batch on each rank of the stage."""
        return batch_partition(self._stage, strategy, self._samples)

    def local_tokens(self, strategy: LayerStrategy) -> int:
        """A rank's tokens of a sample between layers of this strategy."""
        return self._seq_len // strategy.sequence_split

    def token_exchange(self, before: LayerStrategy, after: LayerStrategy) -> TokenExchange:
        """Exchange of tokens between two layouts without replicas."""
        key = (before.layout[:2], after.layout[:2])
        if key not in self._exchanges:
            shape = exchange_group(before, after)
            self._exchanges[key] = token_exchange(
                self.group(shape),
                self._split_blocks(before, shape),
                self._split_blocks(after, shape),
                shape.position(self.local_rank),
                torch.device(self.device_type),
            )
        return self._exchanges[key]

    def _split_blocks(self, strategy: LayerStrategy, shape: RankGroup) -> list[ActivationBlock]:
        samples = self.samples_by_rank(strategy)
        return [
            ActivationBlock(exchanged_tokens(strategy, rank, self._seq_len), samples[rank])
            for rank in shape.members(self.local_rank)
        ]

    def data_mesh(self, strategy: LayerStrategy) -> DeviceMesh:
        """Replica × shard mesh of a layer; without replicas, one axis."""
        shape = shard_group(strategy), replica_group(strategy, self.reduced_ranks(strategy))
        if shape not in self._meshes:
            self._meshes[shape] = self._new_mesh(*shape, self._groups)
        return self._meshes[shape]

    def reduced_ranks(self, strategy: LayerStrategy) -> int:
        """Ranks of this stage that sum a layer's gradients with this one."""
        reduced = self._reduced[self.stage]
        return self.stage_ranks if reduced is None else reduced(strategy)

    def secondary_mesh(self, strategy: LayerStrategy) -> DeviceMesh:
        """Replica × shard mesh of a layer's secondary parameter shards."""
        pieces = inner_group(strategy, strategy.shard.secondary_parameters)
        key = pieces, secondary_replicas(strategy, self.stage_ranks)
        if key not in self._meshes:
            self._meshes[key] = self._new_mesh(*key, self._groups)
        return self._meshes[key]

    def expert_secondary_mesh(self, strategy: LayerStrategy) -> DeviceMesh | None:
        """The same for a layer's experts; None without secondary shards."""
        shape = expert_secondary(strategy, self.stage_ranks)
        if shape is not None and shape not in self._expert_meshes:
            self._expert_meshes[shape] = self._new_mesh(*shape, self._expert_groups)
        return None if shape is None else self._expert_meshes[shape]

    def expert_mesh(self, strategy: LayerStrategy) -> DeviceMesh:
        """Replica × shard mesh of the states of a layer's experts."""
        ranks = self.reduced_ranks(strategy)
        shape = expert_shard_group(strategy, ranks), expert_replica_group(strategy, ranks)
        if shape not in self._expert_meshes:
            self._expert_meshes[shape] = self._new_mesh(*shape, self._expert_groups)
        return self._expert_meshes[shape]

    def expert_state_group(self, shape: RankGroup) -> dist.ProcessGroup:
        """Process group of this shape with states of this rank's experts."""
        members = shape.members(self.local_rank)
        return self._expert_groups[tuple(self.first_rank + r for r in members)]

    def _new_mesh(
        self,
        shard: RankGroup,
        replica: RankGroup,
        groups: dict[tuple[int, ...], dist.ProcessGroup],
    ) -> DeviceMesh:
        def ranks_of(shape: RankGroup, local: int) -> tuple[int, ...]:
            return tuple(self.first_rank + r for r in shape.members(local))

        shard_pg = groups[ranks_of(shard, self.local_rank)]
        if replica.size == 1:
            return DeviceMesh.from_group(shard_pg, self.device_type, mesh_dim_names=("shard",))
        rows = [ranks_of(shard, member) for member in replica.members(self.local_rank)]
        return DeviceMesh.from_group(
            [groups[ranks_of(replica, self.local_rank)], shard_pg],
            self.device_type,
            mesh=torch.tensor(rows, dtype=torch.int),
            mesh_dim_names=("replicate", "shard"),
        )


def _device_groups(stage: Stage) -> list[str]:
    return [part.device_group for part in stage.devices for _ in range(part.count)]
