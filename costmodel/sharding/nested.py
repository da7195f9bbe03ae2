"""Sharding of a part's states over nested ranks: parameters, gradients, optimizer each their own.

With degrees p | g | o for parameters, gradients and optimizer (1 < p, g < o) and s below p for a
secondary copy, M bytes of parameters in the compute type cost a rank, per micro-batch, a gather
of M over p ranks forward and over p (or s) ranks backward and a reduce-scatter over g ranks; and
per step, whatever the number of micro-batches, a reduce-scatter of M/g over the o/g ranks that
hold the parts of one gradient shard, and a gather of M/p over the o/p ranks that hold those of
one parameter shard. It is hpZ of ZeRO++ (Wang et al., arXiv:2306.10209, section 3.2) and the
three levels of Dash et al., arXiv:2501.04266, without their quantised messages.
"""

from __future__ import annotations

from ...spec.report.work_items import Collective, Kernel, streamed
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..symbolic.tape import WorkItem
from .param_groups import ParamGroup


def gather_pieces(part: ParamGroup, degree: int, dtype: str) -> tuple[WorkItem, ...]:
    """Gather the whole part from pieces in the compute type that ``degree`` ranks hold."""
    size, piece = DTYPE_BYTES[dtype], part.padded // degree
    return (
        _copy(piece, dtype),
        Collective("all_gather", *part.inner(degree), part.padded * size, dtype),
        _copy(part.padded, dtype),
    )


def keep_secondary(part: ParamGroup, dtype: str) -> tuple[WorkItem, ...]:
    """The piece of gathered parameters that stays for the backward pass."""
    if part.secondary == 1:
        return ()
    return (_copy(part.padded // part.secondary, dtype),)


def outer_gather_work(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Once a step: updated shards become the pieces that uses gather from."""
    if not part.nests_parameters:
        return ()
    name, size = dtype.param, DTYPE_BYTES[dtype.param]
    piece = part.padded // part.parameters
    read = _cast(part.shard, dtype.master, name)
    group = part.outer(part.parameters)
    return (*read, Collective("all_gather", *group, piece * size, name), _copy(piece, name))


def outer_reduce_work(part: ParamGroup, dtype: DtypeRecord) -> tuple[WorkItem, ...]:
    """Once a step: sums over the gradient's ranks become sums over the optimizer's, and all."""
    if not part.nests_gradients:
        return ()
    name, size = dtype.communication, DTYPE_BYTES[dtype.communication]
    piece = part.padded // part.gradients
    work: list[WorkItem] = [*_cast(piece, dtype.master, name)]
    work.append(Collective("reduce_scatter", *part.outer(part.gradients), piece * size, name))
    if part.replicas.size > 1:
        work.append(Collective("all_reduce", *part.replicas, part.shard * size, name))
    if name != dtype.master:
        work += _cast(part.shard, name, dtype.master)
    return tuple(work)


def stored_pieces_bytes(part: ParamGroup, dtype: DtypeRecord) -> int:
    """Bytes of stored parameters: optimizer shards, and pieces of nested and secondary copies.

    Where compute and master type are one, the shard that is updated lies in the piece.
    """
    size, shard_bytes = DTYPE_BYTES[dtype.param], part.shard * DTYPE_BYTES[dtype.master]
    if part.nests_parameters:
        kept = 0 if dtype.param == dtype.master else shard_bytes
        shard_bytes = kept + part.padded // part.parameters * size
    if part.secondary > 1:
        shard_bytes += part.padded // part.secondary * size
    return shard_bytes


def _copy(elements: int, dtype: str) -> Kernel:
    return streamed("copy", elements, 2 * elements * DTYPE_BYTES[dtype], dtype)


def _cast(elements: int, source: str, dtype: str) -> tuple[Kernel, ...]:
    """Into the communication buffer, in its type."""
    traffic_bytes = elements * (DTYPE_BYTES[source] + DTYPE_BYTES[dtype])
    return (streamed("cast" if source != dtype else "copy", elements, traffic_bytes, dtype),)
