"""Work that sharded parameters make: gathers before use, reductions after it, casts and copies."""

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

MAX_CACHED_GROUPS = 1024
"""Parts whose work is kept: units that differ in their experts have their dense part in common."""


def kernel_per_parameter(
    op: str, elements: tuple[int, ...], bytes_each: int, dtype: str
) -> tuple[WorkItem, ...]:
    """One kernel a parameter."""
    return tuple(streamed(op, n, n * bytes_each, dtype) for n in elements)


def gathered_bytes(shape: UnitShape, part: ParamGroup) -> int:
    """Bytes of a gather of a whole part, linear weights narrow where the stack gathers them so."""
    size, narrow = DTYPE_BYTES[shape.dtype.param], shape.dtype.matmul
    if narrow is None or not shape.stack.narrow_gather:
        return part.padded * size
    return (part.padded - part.narrow) * size + weight_bytes(part.narrow, narrow)


def gathers(
    work: Callable[[ParamGroup, DtypeRecord, str], tuple[WorkItem, ...]],
    shape: UnitShape,
    parts: tuple[ParamGroup, ...],
    frozen: tuple[ParamGroup, ...],
) -> tuple[WorkItem, ...]:
    """Gathers of trained parts, cast from the master's format, and of frozen ones.

    Those of one format are one gather: of dense parameters, and of experts, which have ranks of
    their own.
    """
    found: list[WorkItem] = []
    for part in _gathered_at_once(shape, parts, frozen):
        for item in work(part, shape.formats(part.trained), shape.dtype.param):
            if isinstance(item, Collective) and shape.stack.narrow_gather:
                item = item._replace(payload_bytes=gathered_bytes(shape, part))
            found.append(item)
    return tuple(found)


def gather_bytes(
    shape: UnitShape, parts: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[GatherBytes, ...]:
    """The bytes of :func:`gathers`: fully_shard does one after the other."""
    dtype = shape.dtype
    param, casts = DTYPE_BYTES[dtype.param], dtype.param != dtype.master
    found = []
    for part in _gathered_at_once(shape, parts, frozen):
        sent = part.degree > 1
        flat_bytes = part.padded * param if sent else 0
        cast_bytes = part.shard * param if sent and casts and part.trained else 0
        found.append(GatherBytes(flat_bytes, cast_bytes, part.padded * param))
    return tuple(found)


def _gathered_at_once(
    shape: UnitShape, parts: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[ParamGroup, ...]:
    """Trained and frozen parts, those of one format and the same ranks as one."""
    if shape.base_dtype != shape.dtype.master:
        return (*parts, *frozen)
    return _joined(parts, frozen)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def _joined(
    parts: tuple[ParamGroup, ...], frozen: tuple[ParamGroup, ...]
) -> tuple[ParamGroup, ...]:
    """Trained and frozen parts as one, dense ones and experts apart."""
    found = list(parts)
    for part in frozen:
        alike = (n for n, other in enumerate(found) if other.experts == part.experts)
        same = next(alike, None)
        if same is None:
            found.append(part)
            continue
        other = found[same]
        found[same] = replace(
            other,
            whole=other.whole + part.whole,
            shard=other.shard + part.shard,
            locals=other.locals + part.locals,
            shards=other.shards + part.shards,
            narrow=other.narrow + part.narrow,
        )
    return tuple(found)


def for_each_group(
    parts: tuple[ParamGroup, ...],
    work: Callable[..., tuple[WorkItem, ...]],
    *formats: DtypeRecord | str,
) -> tuple[WorkItem, ...]:
    """The work of each part in turn, in these formats."""
    return tuple([item for part in parts for item in work(part, *formats)])


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def accumulate_shard(n: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Each parameter's reduced gradient, added to those of micro-batches before."""
    shards = tuple(shard * (n.gradient_shard // n.shard) for shard in n.shards)
    return kernel_per_parameter("add", shards, 3 * DTYPE_BYTES[dtype.master], dtype.master)


def reduces_over_replicas(part: ParamGroup) -> bool:
    """Whether each reduction also sums shards over ranks that hold equal ones."""
    return part.replicas.size > 1 and not part.nests_gradients


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def gather_forward(n: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """What a forward pass waits for: the whole part in format ``name``."""
    if n.nests_parameters:
        return (*gather_pieces(n, n.parameters, name), *keep_secondary(n, name))
    return (*_gather_work(n, dtype, name), *_kept_pieces(n, name))


def _kept_pieces(n: ParamGroup, name: str) -> tuple[WorkItem, ...]:
    """What fully_shard keeps of each gathered parameter for the backward pass."""
    if n.secondary == 1:
        return ()
    pieces = tuple(shard * n.degree // n.secondary for shard in n.shards)
    return kernel_per_parameter("copy", pieces, 2 * DTYPE_BYTES[name], name)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def gather_backward(n: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """The same before a backward pass, from the second copy where there is one."""
    if n.secondary == 1:
        return gather_forward(n, dtype, name)
    pieces = gather_pieces(n, n.secondary, name)
    if name == dtype.master:
        return pieces
    return (pieces[0], *pieces)  # where it casts, fully_shard flattens pieces once more


def _gather_work(n: ParamGroup, dtype: DtypeRecord, name: str) -> tuple[WorkItem, ...]:
    """Cast and copy in, all-gather, copy out; a plain copy where nothing is sharded."""
    param, master = DTYPE_BYTES[name], DTYPE_BYTES[dtype.master]
    casts = name != dtype.master
    if n.degree == 1:
        cast = kernel_per_parameter("cast", n.shards, param + master, name) if casts else ()
        return (*cast, *kernel_per_parameter("copy", n.shards, 2 * param, name))
    work: list[WorkItem] = []
    if casts:
        work.append(streamed("copy", n.shard, n.shard * (param + master), name))
    work.append(streamed("copy", n.shard, 2 * n.shard * param, name))
    work.append(Collective("all_gather", *n.group, n.padded * param, name))
    work.append(streamed("copy", n.padded, 2 * n.padded * param, name))
    return tuple(work)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def reduce_work(n: ParamGroup, dtype: DtypeRecord, source_dtype: str) -> tuple[WorkItem, ...]:
    """Copy in, reduce-scatter over the shards, all-reduce over the replicas, cast back."""
    master, comm = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.communication]
    name, whole = dtype.communication, n.padded
    source_bytes = n.whole * DTYPE_BYTES[source_dtype]
    work: list[WorkItem] = [streamed("copy", whole, source_bytes + whole * comm, name)]
    if n.degree == 1:
        work.append(streamed("div", n.shard, 2 * n.shard * comm, name))
        work.append(streamed("copy", n.shard, 2 * n.shard * comm, name))
    else:
        group = n.inner(n.gradients) if n.nests_gradients else n.group
        work.append(Collective("reduce_scatter", *group, whole * comm, name))
    if reduces_over_replicas(n):
        work.append(Collective("all_reduce", *n.replicas, n.shard * comm, name))
    if master != comm:
        kept = n.gradient_shard
        work.append(streamed("cast", kept, kept * (comm + master), dtype.master))
    return tuple(work)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def upcast_work(n: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Gradients of a first micro-batch, kept in the format that they are reduced in."""
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return kernel_per_parameter("cast", n.locals, param + comm, dtype.communication)


@lru_cache(maxsize=MAX_CACHED_GROUPS)
def accumulate_upcast(n: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Gradients of a later micro-batch, added to those kept."""
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return kernel_per_parameter("add", n.locals, param + 2 * comm, dtype.communication)


def partial_sum_work(shards: tuple[int, ...], tp: int, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Flatten the shards, all-reduce over the tensor-parallel ranks, copy each back."""
    elements, master = sum(shards), DTYPE_BYTES[dtype.master]
    return (
        streamed("copy", elements, 2 * elements * master, dtype.master),
        Collective("all_reduce", *RankGroup(tp, 1), elements * master, dtype.master),
        *kernel_per_parameter("copy", shards, 2 * master, dtype.master),
    )
