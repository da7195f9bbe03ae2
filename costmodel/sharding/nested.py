"""Nested sharding: separate degrees for parameters, gradients and optimizer states.

With degrees p | g | o for parameters, gradients and optimizer (1 < p, g < o) and s below p for a
secondary copy, M bytes of parameters in the compute type cost a rank, per micro-batch, a gather of
M over p ranks forward and over p (or s) ranks backward and a reduce-scatter over g ranks; and per
step a reduce-scatter of M/g over the o/g ranks with parts of one gradient shard, and a gather of
M/p over the o/p ranks with parts of one parameter shard. It is hpZ of ZeRO++ (Wang et al.,
arXiv:2306.10209, section 3.2) and the three levels of Dash et al., arXiv:2501.04266, without their
quantized messages.
"""

from __future__ import annotations

from ...spec.report.work_items import Collective, Kernel, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem
from .param_groups import ParamGroup
from .quantized_base import base_pieces, stored_base_bytes


def gather_pieces(group: ParamGroup, degree: int, dtype: str) -> tuple[WorkItem, ...]:
    """Gather the group from ``degree`` ranks' pieces in the compute type; a copy of one's own."""
    if degree == 1:
        return (_copy(group.padded, dtype),)
    size, piece = DTYPE_BYTES[dtype], group.padded // degree
    return (
        _copy(piece, dtype),
        Collective("all_gather", *group.inner(degree), group.padded * size, dtype),
        _copy(group.padded, dtype),
    )


def keep_secondary(group: ParamGroup, dtype: str) -> tuple[WorkItem, ...]:
    """Keep a piece of the gathered parameters for the backward."""
    if group.secondary == 1:
        return ()
    return (_copy(group.padded // group.secondary, dtype),)


def outer_gather_work(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Once per step: gather updated shards into each use's pieces."""
    if not group.nests_parameters:
        return ()
    name, size = dtype.param, DTYPE_BYTES[dtype.param]
    piece = group.padded // group.parameters
    read = _cast(group.shard, dtype.master, name)
    ranks = group.outer(group.parameters)
    return (*read, Collective("all_gather", *ranks, piece * size, name), _copy(piece, name))


def outer_reduce_work(group: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Once per step: reduce gradients to optimizer shards, and over replicas."""
    if not group.nests_gradients:
        return ()
    name, size = dtype.communication, DTYPE_BYTES[dtype.communication]
    piece = group.padded // group.gradients
    work: list[WorkItem] = [*_cast(piece, dtype.master, name)]
    work.append(Collective("reduce_scatter", *group.outer(group.gradients), piece * size, name))
    if group.replicas.size > 1:
        work.append(Collective("all_reduce", *group.replicas, group.shard * size, name))
    if name != dtype.master:
        work += _cast(group.shard, name, dtype.master)
    return tuple(work)


def stored_pieces_bytes(group: ParamGroup, dtype: DtypeRecord) -> int:
    """Bytes of stored parameters: optimizer shards, pieces of nested and secondary copies.

    With one type for both, the updated shard lies in the piece.
    """
    if group.base is not None:
        return stored_base_bytes(group, base_pieces(group))
    size, shard_bytes = DTYPE_BYTES[dtype.param], group.shard * DTYPE_BYTES[dtype.master]
    if group.nests_parameters:
        master_bytes = 0 if dtype.param == dtype.master else shard_bytes
        shard_bytes = master_bytes + group.padded // group.parameters * size
    if group.secondary > 1:
        shard_bytes += group.padded // group.secondary * size
    return shard_bytes


def _copy(elements: int, dtype: str) -> Kernel:
    return streamed("copy", elements, 2 * elements * DTYPE_BYTES[dtype], dtype)


def _cast(elements: int, source: str, dtype: str) -> tuple[Kernel, ...]:
    traffic_bytes = elements * (DTYPE_BYTES[source] + DTYPE_BYTES[dtype])
    return (streamed("cast" if source != dtype else "copy", elements, traffic_bytes, dtype),)
