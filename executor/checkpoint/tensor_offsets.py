"""Global offsets of each rank's tensor shards: the split inverted."""

from __future__ import annotations

from torch.distributed.tensor import DTensor

from ...spec.errors import InputError
from ...spec.model.layer_parameters import split_range
from ...spec.parallel.rank_groups import (
    RankGroup,
    expert_group,
    expert_shard_group,
    expert_tensor_group,
    shard_group,
)
from ...spec.plan.plan import Plan
from ..groups.process_groups import ProcessGroups
from ..stage.initial_weights import parameter_name, tied_source
from ..stage.local_parameters import LocalParameter
from ..technique import NamedState
from .tensor_slices import TensorSlice

REPLICA = "#replica"


def saved_name(plan: Plan, parameter: LocalParameter) -> str:
    """Saved name of a parameter; copies use the owning layer's."""
    return parameter_name(*tied_source(plan.model, parameter.layer, parameter.spec))


def replica_name(name: str, local: LocalParameter, process_groups: ProcessGroups) -> str:
    """A saved name, with the number of a replica that has weights of its own.

    Where a technique of the program leaves replicas out of sums of gradients. The first keeps the
    plain name, so that its weights are those of the model.
    """
    ranks = process_groups.reduced_ranks(local.strategy)
    number = process_groups.local_rank // ranks
    return f"{name}{REPLICA}{number}" if number else name


def saved_shape(local: LocalParameter) -> tuple[int, ...]:
    """Saved shape of a parameter; experts and rows are one dimension."""
    shape = tuple(local.spec.shape)
    return (shape[0] * shape[1], *shape[2:]) if local.spec.expert else shape


def parameter_slice(local: LocalParameter, process_groups: ProcessGroups) -> TensorSlice:
    """This rank's part of a parameter, sharing its storage.

    Tensor-parallel ranks split the parameter's own dimension; sharding then splits rows into equal
    chunks of ceil(rows / shards), the last ones short.
    """
    offsets, shape = (
        _expert_offsets(local, process_groups)
        if local.spec.expert
        else _offsets(local, process_groups)
    )
    first = 0
    if isinstance(local.parameter, DTensor):
        rows = local.parameter.shape[0]
        chunk = -(-rows // shape.size)
        first = min(shape.position(process_groups.local_rank) * chunk, rows)
    runs: tuple[tuple[int, int], ...] = ()
    if local.spec.expert and local.spec.split_dim == 1 and local.strategy.etp > 1:
        runs = _expert_runs(local, process_groups, first, local.data.shape[0])
        offsets[0] = runs[0][0] if runs else offsets[0]
    else:
        offsets[0] += first
    return TensorSlice(local.data, saved_shape(local), tuple(offsets), runs)


def _expert_runs(
    local: LocalParameter, process_groups: ProcessGroups, first: int, count: int
) -> tuple[tuple[int, int], ...]:
    """Runs of row-split experts' rows among all experts' rows.

    ``first`` and ``count`` are this rank's rows among those of its experts' parts.
    """
    experts, rows, *_ = local.spec.shape
    strategy, rank = local.strategy, process_groups.local_rank
    begin = expert_group(strategy).position(rank) * (experts // strategy.ep)
    position = expert_tensor_group(strategy).position(rank)
    start, stop = split_range(rows, strategy.etp, position)
    width, runs = stop - start, []
    while count:
        expert, row = divmod(first, width)
        run = min(width - row, count)
        runs.append(((begin + expert) * rows + start + row, run))
        first, count = first + run, count - run
    return tuple(runs)


def _offsets(local: LocalParameter, process_groups: ProcessGroups) -> tuple[list[int], RankGroup]:
    shape, strategy = local.spec.shape, local.strategy
    offsets, dim = [0] * len(shape), local.spec.split_dim
    if dim is not None and strategy.weight_split > 1:
        position = RankGroup(strategy.weight_split, 1).position(process_groups.local_rank)
        offsets[dim] = split_range(shape[dim], strategy.weight_split, position)[0]
    return offsets, shard_group(strategy)


def _expert_offsets(
    local: LocalParameter, process_groups: ProcessGroups
) -> tuple[list[int], RankGroup]:
    experts, rows, *_ = local.spec.shape
    strategy, rank = local.strategy, process_groups.local_rank
    local_experts = experts // strategy.ep
    offsets = [expert_group(strategy).position(rank) * local_experts * rows]
    if len(local.spec.shape) > 2:
        position = expert_tensor_group(strategy).position(rank)
        split = strategy.etp if local.spec.split_dim == 2 else 1
        offsets.append(position * (local.spec.shape[2] // split) if split > 1 else 0)
    return offsets, expert_shard_group(strategy, process_groups.stage_ranks)


def state_slice(
    name: str,
    state: NamedState,
    process_groups: ProcessGroups,
    parameters: dict[str, LocalParameter],
) -> tuple[str, TensorSlice]:
    """A technique's state as a part of a named tensor.

    Where its group is smaller than the stage, each group has a tensor of its own, which a plan with
    as many groups finds again. A rank's private state is found by that rank alone.

    Raises:
        InputError: the state is not split as its placement says.
    """
    tensor, placement = state.tensor, state.placement
    if placement.kind == "own":
        return f"{name}#rank{process_groups.rank}", TensorSlice.unsplit(tensor)
    if placement.kind == "parameter":
        owner = parameters.get(placement.parameter)
        if owner is None or owner.data.shape != tensor.shape:
            allowed = f"the shape of this rank's part of {placement.parameter}"
            raise InputError(f"state {name}", tuple(tensor.shape), allowed)
        return name, parameter_slice(owner, process_groups).with_tensor(tensor)
    group = placement.group or RankGroup(process_groups.stage_ranks, 1)
    groups = process_groups.stage_ranks // group.size
    if groups > 1:
        first = group.members(process_groups.local_rank)[0]
        heads = [rank for rank in range(process_groups.stage_ranks) if group.position(rank) == 0]
        name = f"{name}#group{heads.index(first)}of{groups}"
    if placement.kind == "replicated":
        return name, TensorSlice.unsplit(tensor)
    full_shape, offsets = list(tensor.shape), [0] * tensor.dim()
    full_shape[placement.dim] *= group.size
    offsets[placement.dim] = group.position(process_groups.local_rank) * tensor.shape[placement.dim]
    return name, TensorSlice(tensor, tuple(full_shape), tuple(offsets))
