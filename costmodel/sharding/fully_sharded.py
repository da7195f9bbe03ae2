"""Sharding work of a layer: gather parameters, reduce gradients, update.

A *unit* is the parameters that move together: a layer's, or those of embedding and head sharing a
weight in one chunk. Parameters are cut along dimension 0 into d parts, each padded to ceil(rows /
d) rows, as fully_shard does (zero3: Rajbhandari et al., 2020, section 5). Traffic: an all-gather of
the unit for each use, a reduce-scatter of its gradients over the d shard ranks, an all-reduce of
the shard over the replicas. With a ``contiguous`` stack only optimizer states shard. Nested degrees
(``nested``) add an outer gather before a step's first gather, an outer reduction after its last.
Dense parameters and experts do this over separate ranks (see ``param_groups``).
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.model.model_spec import EmbeddingLayer, HeadLayer
from ...spec.report.work_items import streamed
from ...spec.workload.number_formats import DTYPE_BYTES, weight_bytes
from ..layers.heads import local_vocab
from ..symbolic.tape import WorkItem
from .fsdp_unit import FsdpUnit, GatherWork, ReduceBytes, ReduceWork
from .nested import outer_gather_work, outer_reduce_work, stored_pieces_bytes
from .optimizers import UpdateShare, merged_share, state_bytes, update_share
from .param_groups import ParamGroup, UnitShape, param_groups
from .traffic import (
    accumulate_shard,
    accumulate_upcast,
    for_each_group,
    gather_backward,
    gather_bytes,
    gather_forward,
    gathers,
    reduce_work,
    reduces_over_replicas,
    upcast_work,
)

STEP_COUNTER_BYTES = 4


def sharded_unit(shape: UnitShape) -> FsdpUnit:
    """Parameters stored as master shards, gathered into a compute copy (FSDP2).

    Frozen ones are stored in their own format, without gradient, and gathered only if sharded.
    """
    dtype, all_groups = shape.dtype, param_groups(shape)
    groups = tuple(group for group in all_groups if group.trained)
    frozen = tuple(group for group in all_groups if not group.trained and group.degree > 1)
    wrapped = any(group.shared for group in groups) or bool(groups and dtype.param != dtype.master)
    wrapped = wrapped or bool(frozen)
    param, master, comm = (DTYPE_BYTES[d] for d in (dtype.param, dtype.master, dtype.communication))
    upcasts = dtype.communication != dtype.param
    elements = sum(group.whole for group in groups)
    sharded = [group for group in groups if group.degree > 1]
    shards = tuple(n for group in groups for n in group.shards)
    return FsdpUnit(
        wrapped=wrapped,
        gathers_each_use=wrapped and shape.strategy.shard.gathers_each_use,
        reduces_each_micro_batch=wrapped and shape.strategy.shard.reduces_each_micro_batch,
        parameter_bytes=sum(
            stored_pieces_bytes(group, shape.formats(group.trained)) for group in all_groups
        )
        + narrow_copies_bytes(shape, all_groups),
        optimizer_bytes=unit_states(shape, groups) + STEP_COUNTER_BYTES * len(shards),
        gathers=gather_bytes(shape, groups, frozen) if wrapped else (),
        gradient_bytes=elements * param,
        accumulated_bytes=elements * (comm if wrapped and upcasts else param),
        shard_gradient_bytes=sum(group.gradient_shard for group in groups) * master
        if wrapped
        else 0,
        reduce_bytes=_reduce_bytes(shape, groups) if wrapped else ReduceBytes(),
        local_elements=elements,
        last_gradient_elements=sharded[-1].locals[-1] if sharded else 0,
        gather=_gather_work(shape, groups, frozen, wrapped),
        reduce=_reduce_work(shape, groups, wrapped),
        post_update=requantize_weights(shape, all_groups),
        update=unit_update(shape, groups, sends_back=True),
        partial_shards=tuple(n for group in groups for n in group.partials),
        tied_bytes=tied_elements_of(shape) * master,
        tied_elements=tied_elements_of(shape),
        overlaps=shape.stack.overlaps,
    )


def _reduce_bytes(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> ReduceBytes:
    dtype = shape.dtype
    comm, master = DTYPE_BYTES[dtype.communication], DTYPE_BYTES[dtype.master]
    return ReduceBytes(
        input_bytes=sum(group.padded for group in groups) * comm,
        scratch_bytes=sum(g.gradient_shard for g in groups if g.reduces_alone) * comm,
        replicated_bytes=sum(g.shard for g in groups if reduces_over_replicas(g)) * master,
    )


def _gather_work(
    shape: UnitShape,
    groups: tuple[ParamGroup, ...],
    frozen: tuple[ParamGroup, ...],
    wrapped: bool,
) -> GatherWork:
    outer = for_each_group(groups, outer_gather_work, shape.dtype)
    if not wrapped:
        return GatherWork(outer=outer)
    backward = any(shape.training(number).backward for number in range(len(shape.layers)))
    return GatherWork(
        forward=gathers(gather_forward, shape, groups, frozen),
        backward=gathers(gather_backward, shape, groups, frozen) if backward else (),
        outer=outer,
    )


def _reduce_work(shape: UnitShape, groups: tuple[ParamGroup, ...], wrapped: bool) -> ReduceWork:
    dtype = shape.dtype
    outer = for_each_group(groups, outer_reduce_work, dtype)
    add_shards = for_each_group(groups, accumulate_shard, dtype)
    if not wrapped:
        return ReduceWork(outer=outer, accumulate_shard=add_shards)
    upcasts = dtype.communication != dtype.param
    accumulated_format = dtype.communication if upcasts else dtype.param
    return ReduceWork(
        fresh=for_each_group(groups, reduce_work, dtype, dtype.param),
        accumulated=for_each_group(groups, reduce_work, dtype, accumulated_format),
        outer=outer,
        accumulate_shard=add_shards,
        upcast=for_each_group(groups, upcast_work, dtype) if upcasts else (),
        accumulate_upcast=for_each_group(groups, accumulate_upcast, dtype) if upcasts else (),
    )


def unit_states(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> int:
    """Bytes of the optimizer's states of trained groups."""
    tensors = (tensor for group in groups for tensor in group.tensors)
    return state_bytes(shape.optimizer, shape.dtype, tensors)


def unit_update(shape: UnitShape, groups: tuple[ParamGroup, ...], sends_back: bool) -> UpdateShare:
    """The trained groups' share of their rank's update."""
    return merged_share(
        update_share(
            shape.optimizer,
            group.tensors,
            (group.shard - group.vectors, group.vectors),
            (group.ranks, group.split),
            sends_back,
        )
        for group in groups
    )


def without_optimizer(shape: UnitShape, unit: FsdpUnit) -> FsdpUnit:
    """A unit that a technique updates in place of the optimizer, which then keeps no states.

    Norm and clipping stay. Its own work and states are the technique's to add.
    """
    groups = tuple(group for group in param_groups(shape) if group.trained)
    freed = unit_states(shape, groups)
    if shape.stack.state_layout != "contiguous":
        freed += STEP_COUNTER_BYTES * sum(len(group.shards) for group in groups)
    return replace(
        unit,
        optimizer_bytes=unit.optimizer_bytes - freed,
        update=UpdateShare(replaced=unit.update.elements),
    )


def narrow_copies_bytes(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> int:
    """Quantized copies of weights, both ways round, if the stack keeps them."""
    if shape.dtype.matmul is None or shape.stack.narrow_weights != "cached":
        return 0
    return 2 * weight_bytes(sum(group.narrow for group in groups), shape.dtype.matmul)


def requantize_weights(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> tuple[WorkItem, ...]:
    """Kernel to requantize the trained weights' copies once a step."""
    target_format = shape.dtype.matmul
    elements = sum(group.narrow for group in groups if group.trained)
    if target_format is None or not elements or shape.stack.narrow_weights != "cached":
        return ()
    copies_bytes = 2 * weight_bytes(elements, target_format)
    traffic_bytes = elements * DTYPE_BYTES[shape.dtype.param] + copies_bytes
    return (streamed("quantize", elements, traffic_bytes, target_format),)


def tied_elements_of(shape: UnitShape, degree: int | None = None) -> int:
    """Elements in a shard of the token table, possibly shared by stages."""
    degree = degree or shape.strategy.shard.optimizer
    for number, layer in enumerate(shape.layers):
        trained = shape.training(number).weights
        if trained and isinstance(layer, (EmbeddingLayer, HeadLayer)):
            rows = local_vocab(layer.vocab, shape.strategy.weight_split, shape.stack.vocab_multiple)
            return -(-rows // degree) * layer.hidden
    return 0
