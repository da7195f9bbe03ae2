"""Traffic of sharded parameters: gathers, reductions, casts and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from ...spec.parallel.rank_groups import RankGroup
from ...spec.report.work_items import Collective, streamed
from ...spec.workload.number_formats import DTYPE_BYTES, weight_bytes
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem
from .fsdp_unit import GatherBytes
from .nested import gather_pieces, keep_secondary
from .param_groups import ParamGroup, UnitShape
from .quantized_base import base_pieces, gather_base, gathered_base_bytes, keep_secondary_base

MAX_CACHED_GROUPS = 1024
"""Groups whose work is cached: units that differ in their experts share their dense group."""


def kernel_per_parameter(
    op: str, elements: tuple[int, ...], bytes_each: int, dtype: str
) -> tuple[WorkItem, ...]:
    """One kernel per parameter."""
    return tuple(streamed(op, n, n * bytes_each, dtype) for n in elements)


def gathered_bytes(shape: UnitShape, group: ParamGroup) -> int:
    """Bytes of a group's gather, linear weights in the stack's gather format."""
    if group.base is not None:
        return gathered_base_bytes(group)
    size, narrow = DTYPE_BYTES[shape.dtype.param], shape.dtype.matmul
    if narrow is None or not shape.stack.narrow_gather:
        return group.padded * size
    return (group.padded - group.narrow) * size + weight_bytes(group.narrow, narrow)


def gathers(
    work: Callable[[ParamGroup, DtypeRecord, str], tuple[WorkItem, ...]],
    shape: UnitShape,
    groups: tuple[ParamGroup, ...],
    frozen: tuple[ParamGroup, ...],
) -> tuple[WorkItem, ...]:
    """Gathers of trained groups, cast from masters, and of frozen ones.

    One per format, and each for dense parameters and experts, on separate ranks.
    """
    items: list[WorkItem] = []
    for group in _gathered_at_once(shape, groups, frozen):
        for item in work(group, shape.formats(group.trained), shape.dtype.param):
            if isinstance(item, Collective) and shape.stack.narrow_gather:
                item = item._replace(payload_bytes=gathered_bytes(shape, group))
            items.append(item)
    return tuple(items)


def gather_bytes(
    shape: UnitShape, groups: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[GatherBytes, ...]:
    """The bytes of :func:`gathers`; fully_shard runs them in sequence."""
    dtype = shape.dtype
    param, casts = DTYPE_BYTES[dtype.param], dtype.param != dtype.master
    sizes = []
    for group in _gathered_at_once(shape, groups, frozen):
        is_sharded = group.degree > 1
        whole_bytes = group.padded * param if group.base is None else gathered_base_bytes(group)
        flat_bytes = whole_bytes if is_sharded else 0
        cast_bytes = group.shard * param if is_sharded and casts and group.trained else 0
        sizes.append(GatherBytes(flat_bytes, cast_bytes, whole_bytes))
    return tuple(sizes)


def _gathered_at_once(
    shape: UnitShape, groups: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[ParamGroup, ...]:
    if shape.base_dtype != shape.dtype.master:
        return (*groups, *frozen)
    quantized = tuple(group for group in frozen if group.base is not None)
    plain = tuple(group for group in frozen if group.base is None)
    return (*_merged(groups, plain), *quantized)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def _merged(
    groups: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[ParamGroup, ...]:
    """Merge trained and frozen groups, dense ones and experts apart."""
    merged = list(groups)
    for group in frozen:
        matches = (n for n, other in enumerate(merged) if other.experts == group.experts)
        position = next(matches, None)
        if position is None:
            merged.append(group)
            continue
        other = merged[position]
        merged[position] = replace(
            other,
            whole=other.whole + group.whole,
            shard=other.shard + group.shard,
            locals=other.locals + group.locals,
            shards=other.shards + group.shards,
            narrow=other.narrow + group.narrow,
        )
    return tuple(merged)


def for_each_group(
    groups: tuple[ParamGroup, ...],
    work: Callable[..., tuple[WorkItem, ...]],
    *formats: DtypeRecord | str,
) -> tuple[WorkItem, ...]:
    """The work of each group in turn, in these formats."""
    return tuple([item for group in groups for item in work(group, *formats)])


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def accumulate_shard(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Add each parameter's reduced gradient to those of earlier micro-batches."""
    shards = tuple(shard * (group.gradient_shard // group.shard) for shard in group.shards)
    return kernel_per_parameter("add", shards, 3 * DTYPE_BYTES[dtype.master], dtype.master)


def reduces_over_replicas(group: ParamGroup) -> bool:
    """True if each reduction also sums shards over ranks with equal ones."""
    return group.replicas.size > 1 and not group.nests_gradients


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def gather_forward(group: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """Gather the whole group before a forward, in format ``name``."""
    if group.base is not None:
        return (*gather_base(group, base_pieces(group)), *keep_secondary_base(group))
    if group.nests_parameters:
        return (*gather_pieces(group, group.parameters, name), *keep_secondary(group, name))
    return (*_gather_work(group, dtype, name), *_kept_pieces(group, name))


def _kept_pieces(group: ParamGroup, name: str) -> tuple[WorkItem, ...]:
    if group.secondary == 1:
        return ()
    pieces = tuple(shard * group.degree // group.secondary for shard in group.shards)
    return kernel_per_parameter("copy", pieces, 2 * DTYPE_BYTES[name], name)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def gather_backward(group: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """Gather before a backward, from the secondary copy if there is one."""
    if group.secondary == 1:
        return gather_forward(group, dtype, name)
    if group.base is not None:
        return gather_base(group, group.secondary)
    pieces = gather_pieces(group, group.secondary, name)
    if name == dtype.master:
        return pieces
    return (pieces[0], *pieces)  # where it casts, fully_shard flattens pieces once more


def _gather_work(group: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """Cast and copy in, all-gather, copy out; unsharded, a plain copy."""
    param, master = DTYPE_BYTES[name], DTYPE_BYTES[dtype.master]
    casts = name != dtype.master
    if group.degree == 1:
        cast = kernel_per_parameter("cast", group.shards, param + master, name) if casts else ()
        return (*cast, *kernel_per_parameter("copy", group.shards, 2 * param, name))
    work: list[WorkItem] = []
    if casts:
        work.append(streamed("copy", group.shard, group.shard * (param + master), name))
    work.append(streamed("copy", group.shard, 2 * group.shard * param, name))
    work.append(Collective("all_gather", *group.ranks, group.padded * param, name))
    work.append(streamed("copy", group.padded, 2 * group.padded * param, name))
    return tuple(work)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def reduce_work(group: ParamGroup, dtype: DtypeRecord, source_dtype: str) -> tuple[WorkItem, ...]:
    """Copy in, reduce-scatter over the shards, all-reduce over the replicas, cast back."""
    master, comm = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.communication]
    name, padded = dtype.communication, group.padded
    source_bytes = group.whole * DTYPE_BYTES[source_dtype]
    work: list[WorkItem] = [streamed("copy", padded, source_bytes + padded * comm, name)]
    if group.reduces_alone:
        reduced = group.gradient_shard
        work.append(streamed("div", reduced, 2 * reduced * comm, name))
        work.append(streamed("copy", reduced, 2 * reduced * comm, name))
    else:
        ranks = group.inner(group.gradients) if group.nests_gradients else group.ranks
        work.append(Collective("reduce_scatter", *ranks, padded * comm, name))
    if reduces_over_replicas(group):
        work.append(Collective("all_reduce", *group.replicas, group.shard * comm, name))
    if master != comm:
        shard = group.gradient_shard
        work.append(streamed("cast", shard, shard * (comm + master), dtype.master))
    return tuple(work)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def upcast_work(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Cast a first micro-batch's gradients to the format of their reduction."""
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return kernel_per_parameter("cast", group.locals, param + comm, dtype.communication)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def accumulate_upcast(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Add a later micro-batch's gradients to the kept ones."""
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return kernel_per_parameter("add", group.locals, param + 2 * comm, dtype.communication)


def partial_sum_work(shards: tuple[int, ...], tp: int, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Flatten the shards, all-reduce over the tensor-parallel ranks, copy each back."""
    elements, master = sum(shards), DTYPE_BYTES[dtype.master]
    return (
        streamed("copy", elements, 2 * elements * master, dtype.master),
        Collective("all_reduce", *RankGroup(tp, 1), elements * master, dtype.master),
        *kernel_per_parameter("copy", shards, 2 * master, dtype.master),
    )
