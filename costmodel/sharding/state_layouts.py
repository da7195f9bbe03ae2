"""Where states live: the unit of each layout that a stack may have.

``fsdp2`` is in :mod:`fully_sharded`. With ``contiguous`` (Megatron-LM) parameters stay whole and
only
optimizer states shard. With ``partitioned`` (DeepSpeed's ZeRO: Rajbhandari et al., 2020, section
5) compute parameters live beside a sharded master copy: whole and gathered after the update up
to zero2, with zero3 sharded too and gathered for each use; gradients move as in fsdp2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ...spec.report.work_items import Collective, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem
from .fsdp_unit import MAX_CACHED_UNITS, FsdpUnit, GatherBytes
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
    dtype, every = shape.dtype, param_groups(shape)
    parts = tuple(part for part in every if part.trained)
    whole, shard = sum(part.whole for part in parts), sum(part.shard for part in parts)
    param, gradient = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.gradient]
    has_master = dtype.param != dtype.master
    master_bytes = shard * DTYPE_BYTES[dtype.master] if has_master else 0
    reduce = for_each_group(parts, _buffer_reduction, dtype)
    return FsdpUnit(
        wrapped=False,
        gathers_each_use=False,
        reduces_each_micro_batch=False,
        parameter_bytes=(whole - _only_narrow(shape, parts)) * param
        + _frozen_bytes(shape, every)
        + narrow_copies_bytes(shape, every),
        optimizer_bytes=unit_states(shape, parts) + master_bytes,
        gathers=(),
        gradient_bytes=0 if shape.stack.fusion.weight_gradient_accumulation else whole * param,
        accumulated_bytes=whole * gradient,
        shard_gradient_bytes=0,
        reduce_input_bytes=0,
        reduce_scratch_bytes=0,
        local_elements=whole,
        last_gradient_elements=0,
        replicated_bytes=0,
        gather=(),
        gather_backward=(),
        outer_gather=(),
        outer_reduce=(),
        reduce=reduce,
        reduce_accumulated=reduce,
        accumulate_shard=(),
        upcast=(),
        accumulate_upcast=(),
        post_update=(*_buffer_gathers(shape, parts), *requantize_weights(shape, every)),
        update=unit_update(shape, parts, sends_back=False),
        partial_shards=tuple(n for part in parts for n in part.partials),
        tied_bytes=tied_elements_of(shape, 1) * DTYPE_BYTES[dtype.master],
        tied_elements=tied_elements_of(shape),
    )


def _only_narrow(shape: UnitShape, parts: tuple[ParamGroup, ...]) -> int:
    """Elements that are kept in the narrow format alone, which is what is gathered then.

    Megatron-LM arguments.py, --fp8-param-gather: the compute parameter is kept in fp8.
    """
    stack = shape.stack
    kept = stack.narrow_gather and stack.narrow_weights == "cached"
    if shape.dtype.matmul is None or not kept:
        return 0
    return sum(part.narrow for part in parts)


def _frozen_bytes(shape: UnitShape, every: tuple[ParamGroup, ...]) -> int:
    """Bytes of frozen parameters beside their narrow copies, which are all where a stack says so.

    Transformer Engine pytorch/module/base.py: with fp8 parameters a weight is made in fp8, whether
    it is trained or not. A format that was asked for is kept.
    """
    frozen = tuple(part for part in every if not part.trained)
    whole = sum(part.whole for part in frozen)
    asked = shape.base_dtype != shape.dtype.param
    kept = whole if asked else whole - _only_narrow(shape, frozen)
    return kept * DTYPE_BYTES[shape.base_dtype]


def _buffer_reduction(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """The reduction of a part's gradient buffer, once a step."""
    size, name = DTYPE_BYTES[dtype.communication], dtype.communication
    work: list[WorkItem] = []
    if part.degree > 1:
        work.append(Collective("reduce_scatter", *part.group, part.padded * size, name))
    if part.replicas.size > 1:
        work.append(Collective("all_reduce", *part.replicas, part.shard * size, name))
    return tuple(work)


def _buffer_gathers(shape: UnitShape, parts: tuple[ParamGroup, ...]) -> tuple[WorkItem, ...]:
    """The all-gathers of parameters after an update that is sharded."""
    name = shape.dtype.param
    return tuple(
        Collective("all_gather", *part.group, gathered_bytes(shape, part), name)
        for part in parts
        if part.degree > 1
    )


def partitioned_unit(shape: UnitShape) -> FsdpUnit:
    """Compute parameters, whole or in pieces, beside sharded master weights (DeepSpeed)."""
    dtype, every = shape.dtype, param_groups(shape)
    plain = sharded_unit(shape)
    if not plain.wrapped:
        return plain
    parts = tuple(part for part in every if part.trained)
    param, master = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.master]
    copies = sum(part.shard for part in parts) * master if dtype.param != dtype.master else 0
    pieces = tuple(part for part in every if part.parameters > 1)
    gathered = sum(part.padded for part in pieces) * param
    whole = [part for part in parts if part.parameters == 1]
    return replace(
        plain,
        parameter_bytes=sum(_stored_bytes(shape, part) for part in every)
        + narrow_copies_bytes(shape, every),
        optimizer_bytes=plain.optimizer_bytes + copies,
        gathers=(GatherBytes(gathered, 0, gathered),),
        gather=tuple(item for part in pieces for item in _piece_gather(part, dtype)),
        gather_backward=tuple(item for part in pieces for item in _piece_again(part, dtype)),
        outer_gather=(),
        post_update=(
            *(item for part in parts for item in _update_compute_copy(part, dtype)),
            *_buffer_gathers(shape, tuple(whole)),
            *requantize_weights(shape, every),
        ),
        update=unit_update(shape, parts, sends_back=False),
    )


def _stored_bytes(shape: UnitShape, part: ParamGroup) -> int:
    """Bytes of a part's compute parameters between uses."""
    name = shape.dtype.param if part.trained else shape.base_dtype
    if part.parameters == 1:
        return part.whole * DTYPE_BYTES[name]
    pieces = part.padded // part.parameters
    second = part.padded // part.secondary if part.secondary > 1 else 0
    return (pieces + second) * DTYPE_BYTES[name]


def _piece_gather(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    pieces = gather_pieces(part, part.parameters, dtype.param)
    return (*pieces, *keep_secondary(part, dtype.param))


def _piece_again(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    if part.secondary > 1:
        return gather_pieces(part, part.secondary, dtype.param)
    return _piece_gather(part, dtype)


def _update_compute_copy(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Updated master weights become compute parameters, in the pieces that uses gather from."""
    param, master = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.master]
    work: list[WorkItem] = []
    if dtype.param != dtype.master:
        traffic_bytes = part.shard * (param + master)
        work.append(streamed("cast", part.shard, traffic_bytes, dtype.param))
    if part.nests_parameters:
        size = part.padded // part.parameters * param
        outer = part.outer(part.parameters)
        work.append(Collective("all_gather", *outer, size, dtype.param))
    return tuple(work)
