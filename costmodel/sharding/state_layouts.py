"""State layouts of frameworks: the unit of each.

``fsdp2`` is in :mod:`fully_sharded`. With ``contiguous`` (Megatron-LM) only optimizer states shard.
With ``partitioned`` (DeepSpeed's ZeRO: Rajbhandari et al., 2020, section 5) compute parameters live
beside a sharded master copy: up to zero2 whole, gathered after the update; with zero3 sharded,
gathered for each use. Gradients move as in fsdp2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ...spec.report.work_items import Collective, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem
from .fsdp_unit import MAX_CACHED_UNITS, FsdpUnit, GatherBytes, GatherWork, ReduceBytes, ReduceWork
from .fully_sharded import (
    narrow_copies_bytes,
    requantize_weights,
    sharded_unit,
    tied_elements_of,
    unit_states,
    unit_update,
)
from .nested import gather_pieces, keep_secondary
from .param_groups import ParamGroup, UnitShape, param_groups
from .quantized_base import (
    gather_base,
    gathered_base_bytes,
    keep_secondary_base,
    stored_base_bytes,
)
from .traffic import for_each_group, gathered_bytes


@lru_cache(maxsize=MAX_CACHED_UNITS)
def lower_unit(shape: UnitShape) -> FsdpUnit:
    """Sizes and work of a unit under its strategy and stack."""
    layout = shape.stack.state_layout
    if layout == "contiguous":
        return contiguous_unit(shape)
    return partitioned_unit(shape) if layout == "partitioned" else sharded_unit(shape)


def contiguous_unit(shape: UnitShape) -> FsdpUnit:
    """Whole compute parameters and gradient buffers; the optimizer shards (Megatron-LM)."""
    dtype, all_groups = shape.dtype, param_groups(shape)
    groups = tuple(group for group in all_groups if group.trained)
    elements, shard = sum(group.whole for group in groups), sum(group.shard for group in groups)
    param, gradient = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.gradient]
    has_master = dtype.param != dtype.master
    master_bytes = shard * DTYPE_BYTES[dtype.master] if has_master else 0
    reduce = for_each_group(groups, _buffer_reduction, dtype)
    return FsdpUnit(
        wrapped=False,
        gathers_each_use=False,
        reduces_each_micro_batch=False,
        parameter_bytes=(elements - _only_narrow(shape, groups)) * param
        + _frozen_bytes(shape, all_groups)
        + narrow_copies_bytes(shape, all_groups),
        optimizer_bytes=unit_states(shape, groups) + master_bytes,
        gathers=(),
        gradient_bytes=0 if shape.stack.fusion.weight_gradient_accumulation else elements * param,
        accumulated_bytes=elements * gradient,
        shard_gradient_bytes=0,
        reduce_bytes=ReduceBytes(),
        local_elements=elements,
        last_gradient_elements=0,
        gather=GatherWork(),
        reduce=ReduceWork(fresh=reduce, accumulated=reduce),
        post_update=(*_buffer_gathers(shape, groups), *requantize_weights(shape, all_groups)),
        update=unit_update(shape, groups, sends_back=False),
        partial_shards=tuple(n for group in groups for n in group.partials),
        tied_bytes=tied_elements_of(shape, 1) * DTYPE_BYTES[dtype.master],
        tied_elements=tied_elements_of(shape),
        overlaps=shape.stack.overlaps,
    )


def _only_narrow(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> int:
    """Elements kept, and gathered, only in the low-precision format.

    Megatron-LM arguments.py, --fp8-param-gather: the compute parameter is kept in fp8.
    """
    stack = shape.stack
    narrow_only = stack.narrow_gather and stack.narrow_weights == "cached"
    if shape.dtype.matmul is None or not narrow_only:
        return 0
    return sum(group.narrow for group in groups)


def _frozen_bytes(shape: UnitShape, all_groups: tuple[ParamGroup, ...]) -> int:
    """Bytes of frozen parameters beside their low-precision copies.

    With fp8 parameters the copy is all there is (Transformer Engine pytorch/module/base.py makes a
    weight in fp8, trained or not), unless a format is requested.
    """
    quantized = (group for group in all_groups if group.base is not None)
    quantized_bytes = sum(stored_base_bytes(group, 1) for group in quantized)
    frozen = tuple(group for group in all_groups if not group.trained and group.base is None)
    frozen_elements = sum(group.whole for group in frozen)
    has_own_format = shape.base_dtype != shape.dtype.param
    elements = frozen_elements if has_own_format else frozen_elements - _only_narrow(shape, frozen)
    return elements * DTYPE_BYTES[shape.base_dtype] + quantized_bytes


def _buffer_reduction(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    size, name = DTYPE_BYTES[dtype.communication], dtype.communication
    work: list[WorkItem] = []
    if group.degree > 1:
        work.append(Collective("reduce_scatter", *group.ranks, group.padded * size, name))
    if group.replicas.size > 1:
        work.append(Collective("all_reduce", *group.replicas, group.shard * size, name))
    return tuple(work)


def _buffer_gathers(shape: UnitShape, groups: tuple[ParamGroup, ...]) -> tuple[WorkItem, ...]:
    name = shape.dtype.param
    return tuple(
        Collective("all_gather", *group.ranks, gathered_bytes(shape, group), name)
        for group in groups
        if group.degree > 1
    )


def partitioned_unit(shape: UnitShape) -> FsdpUnit:
    """Compute parameters, whole or in pieces, beside sharded master weights (DeepSpeed)."""
    dtype, all_groups = shape.dtype, param_groups(shape)
    unit = sharded_unit(shape)
    if not unit.wrapped:
        return unit
    groups = tuple(group for group in all_groups if group.trained)
    param, master = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.master]
    master_bytes = (
        sum(group.shard for group in groups) * master if dtype.param != dtype.master else 0
    )
    sharded = tuple(group for group in all_groups if group.parameters > 1)
    gathered = sum(
        group.padded * param if group.base is None else gathered_base_bytes(group)
        for group in sharded
    )
    unsharded = [group for group in groups if group.parameters == 1]
    return replace(
        unit,
        parameter_bytes=sum(_stored_bytes(shape, group) for group in all_groups)
        + narrow_copies_bytes(shape, all_groups),
        optimizer_bytes=unit.optimizer_bytes + master_bytes,
        gathers=(GatherBytes(gathered, 0, gathered),),
        shard_gradient_bytes=sum(g.gradient_shard for g in groups) * DTYPE_BYTES[dtype.gradient],
        gather=GatherWork(
            forward=for_each_group(sharded, _piece_gather, dtype),
            backward=for_each_group(sharded, _piece_gather_backward, dtype),
        ),
        post_update=(
            *(item for group in groups for item in _update_compute_copy(group, dtype)),
            *_buffer_gathers(shape, tuple(unsharded)),
            *requantize_weights(shape, all_groups),
        ),
        update=unit_update(shape, groups, sends_back=False),
    )


def _stored_bytes(shape: UnitShape, group: ParamGroup) -> int:
    if group.base is not None:
        return stored_base_bytes(group, group.parameters)
    name = shape.dtype.param if group.trained else shape.base_dtype
    if group.parameters == 1:
        return group.whole * DTYPE_BYTES[name]
    pieces = group.padded // group.parameters
    secondary = group.padded // group.secondary if group.secondary > 1 else 0
    return (pieces + secondary) * DTYPE_BYTES[name]


def _piece_gather(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    if group.base is not None:
        return (*gather_base(group, group.parameters), *keep_secondary_base(group))
    pieces = gather_pieces(group, group.parameters, dtype.param)
    return (*pieces, *keep_secondary(group, dtype.param))


def _piece_gather_backward(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    if group.secondary > 1 and group.base is not None:
        return gather_base(group, group.secondary)
    if group.secondary > 1:
        return gather_pieces(group, group.secondary, dtype.param)
    return _piece_gather(group, dtype)


def _update_compute_copy(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    param, master = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.master]
    work: list[WorkItem] = []
    if dtype.param != dtype.master:
        traffic_bytes = group.shard * (param + master)
        work.append(streamed("cast", group.shard, traffic_bytes, dtype.param))
    if group.nests_parameters:
        size = group.padded // group.parameters * param
        outer = group.outer(group.parameters)
        work.append(Collective("all_gather", *outer, size, dtype.param))
    return tuple(work)
