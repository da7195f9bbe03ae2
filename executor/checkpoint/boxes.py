"""Where what a rank holds lies in the whole tensors of the model: the inverse of how it was cut."""

from __future__ import annotations

from torch.distributed.tensor import DTensor

from ...spec.errors import InputError
from ...spec.groups import (
    RankGroup,
    expert_group,
    expert_shard_group,
    expert_tensor_group,
    shard_group,
)
from ...spec.parameters import split_range
from ...spec.plan import Plan
from ..local import LocalParameter
from ..mesh import GroupBook
from ..parameters import parameter_name, tied_source
from ..technique import NamedState
from .parts import Part


def saved_name(plan: Plan, parameter: LocalParameter) -> str:
    """The name of a parameter's numbers: copies have that of the layer whose own it is."""
    return parameter_name(*tied_source(plan.model, parameter.layer, parameter.spec))


def saved_shape(local: LocalParameter) -> tuple[int, ...]:
    """The shape of a parameter's numbers; all experts' rows are one dimension."""
    shape = tuple(local.spec.shape)
    return (shape[0] * shape[1], *shape[2:]) if local.spec.expert else shape


def parameter_offsets(local: LocalParameter, book: GroupBook) -> tuple[int, ...]:
    """Where this rank's part of a parameter begins in it, in every dimension.

    Tensor-parallel ranks cut along the parameter's own dimension; sharding then cuts rows into
    equal chunks of ceil(rows / shards), of which the last ones are short.

    Raises:
        InputError: rows of experts that are split over ranks, which lie apart in the whole.
    """
    offsets, shape = _expert_offsets(local, book) if local.spec.expert else _offsets(local, book)
    if isinstance(local.parameter, DTensor):
        rows = local.parameter.shape[0]
        chunk = -(-rows // shape.size)
        offsets[0] += min(shape.position(book.local_rank) * chunk, rows)
    return tuple(offsets)


def _offsets(local: LocalParameter, book: GroupBook) -> tuple[list[int], RankGroup]:
    """Where a part begins before it is sharded, and the ranks that it is then sharded over."""
    whole, strategy = local.spec.shape, local.strategy
    offsets, dim = [0] * len(whole), local.spec.split_dim
    if dim is not None and strategy.weight_split > 1:
        place = RankGroup(strategy.weight_split, 1).position(book.local_rank)
        offsets[dim] = split_range(whole[dim], strategy.weight_split, place)[0]
    return offsets, shard_group(strategy)


def _expert_offsets(local: LocalParameter, book: GroupBook) -> tuple[list[int], RankGroup]:
    """The same of experts, whose rows are one dimension."""
    experts, rows, *_ = local.spec.shape
    strategy, rank = local.strategy, book.local_rank
    if strategy.etp > 1 and local.spec.split_dim == 1:
        allowed = "etp 1: rows of experts that etp splits lie apart"
        raise InputError("--checkpoint", f"etp {strategy.etp}", allowed, "--pin etp=1")
    each = experts // strategy.ep
    offsets = [expert_group(strategy).position(rank) * each * rows]
    if len(local.spec.shape) > 2:
        place = expert_tensor_group(strategy).position(rank)
        split = strategy.etp if local.spec.split_dim == 2 else 1
        offsets.append(place * (local.spec.shape[2] // split) if split > 1 else 0)
    return offsets, expert_shard_group(strategy, book.stage_ranks)


def state_part(
    name: str,
    state: NamedState,
    book: GroupBook,
    parameters: dict[str, LocalParameter],
) -> tuple[str, Part]:
    """A technique's state as a part of a named tensor.

    Where its group is smaller than the stage, each of the groups has a tensor of its own, which a
    plan with as many groups finds again. A rank's own state is found by that rank alone.

    Args:
        name: of the state.
        state: its tensor, and how it lies on ranks.
        book: groups of this rank.
        parameters: this rank's, by name.

    Raises:
        InputError: the state is not cut as its placement says.
    """
    tensor, placement = state.tensor, state.placement
    if placement.kind == "own":
        return f"{name}#rank{book.rank}", Part.all_of(tensor)
    if placement.kind == "parameter":
        owner = parameters.get(placement.parameter)
        if owner is None or owner.data.shape != tensor.shape:
            allowed = f"the shape of this rank's part of {placement.parameter}"
            raise InputError(f"state {name}", tuple(tensor.shape), allowed)
        return name, Part(tensor, saved_shape(owner), parameter_offsets(owner, book))
    group = placement.group or RankGroup(book.stage_ranks, 1)
    groups = book.stage_ranks // group.size
    if groups > 1:
        first = group.members(book.local_rank)[0]
        heads = [rank for rank in range(book.stage_ranks) if group.position(rank) == 0]
        name = f"{name}#group{heads.index(first)}of{groups}"
    if placement.kind == "replicated":
        return name, Part.all_of(tensor)
    whole, offsets = list(tensor.shape), [0] * tensor.dim()
    whole[placement.dim] *= group.size
    offsets[placement.dim] = group.position(book.local_rank) * tensor.shape[placement.dim]
    return name, Part(tensor, tuple(whole), tuple(offsets))
