"""What sharding adds to a layer: gathering parameters, reducing gradients, updating.

A *unit* is the parameters that move together: one layer's, or embedding and head where they
share a weight in one chunk. Parameters are cut along dimension 0 into d parts, each padded to
ceil(rows / d) rows, as fully_shard does (zero3: Rajbhandari et al., 2020, section 5). Traffic:
an all-gather of the whole unit for each use, a reduce-scatter of its gradients over the d shard
ranks, an all-reduce of the shard over the replicas. With a ``contiguous`` stack parameters stay
whole and only optimizer states shard. Degrees that nest add the traffic of ``nested_sharding``:
``refresh`` before a step's first gather, ``settle`` after its last reduction. Dense parameters
and experts of one unit do this over ranks of their own (see ``unit_parts``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..spec.formats import DTYPE_BYTES
from ..spec.groups import RankGroup
from ..spec.kernels import Collective, Kernel
from ..spec.model import EmbeddingLayer, HeadLayer
from ..spec.workload import DtypeRecord
from .heads import local_vocab
from .nested_sharding import (
    gather_pieces,
    held_pieces_bytes,
    keep_secondary,
    refresh_pieces,
    settle_gradients,
)
from .tape import Item
from .unit_parts import Part, UnitShape, unit_parts

MOMENTS = 2
STEP_COUNTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """Sizes and work of one unit on its fullest rank.

    ``whole_bytes``: the gathered compute copy (0 where parameters are used in place).
    ``flat_bytes``: the communication buffer of a gather. ``reduce_input_bytes`` and
    ``reduce_scratch_bytes``: buffers of a reduction, during which the last parameter's gradient
    is still held; ``replicated_bytes`` of its result are held until the pass ends.
    ``gradient_bytes``: unreduced gradients of one micro-batch; ``accumulated_bytes``: the same
    while they wait for the last one; ``shard_gradient_bytes``: reduced ones until the update.
    """

    wrapped: bool
    gathers_each_use: bool
    reduces_each_micro_batch: bool
    parameter_bytes: int
    optimizer_bytes: int
    whole_bytes: int
    flat_bytes: int
    cast_bytes: int
    gradient_bytes: int
    accumulated_bytes: int
    shard_gradient_bytes: int
    reduce_input_bytes: int
    reduce_scratch_bytes: int
    local_elements: int
    last_gradient_elements: int
    replicated_bytes: int
    gather: tuple[Item, ...]
    gather_backward: tuple[Item, ...]
    refresh: tuple[Item, ...]
    settle: tuple[Item, ...]
    reduce: tuple[Item, ...]
    reduce_accumulated: tuple[Item, ...]
    accumulate_shard: tuple[Item, ...]
    upcast: tuple[Item, ...]
    accumulate_upcast: tuple[Item, ...]
    matrix_elements: int
    vector_elements: int
    partial_shards: tuple[int, ...]
    tied_bytes: int
    tied_elements: int


@lru_cache(maxsize=65536)
def lower_unit(shape: UnitShape) -> Unit:
    """Sizes and work of a unit under its strategy and stack."""
    if shape.stack.state_layout == "contiguous":
        return _contiguous_unit(shape)
    return _sharded_unit(shape)


def _kernel(op: str, elements: int, traffic_bytes: int, dtype: str) -> Kernel:
    return Kernel(op, (elements,), dtype, 0, traffic_bytes)


def _each(op: str, elements: tuple[int, ...], bytes_each: int, dtype: str) -> tuple[Item, ...]:
    """One kernel a parameter."""
    return tuple(_kernel(op, n, n * bytes_each, dtype) for n in elements)


def _sharded_unit(shape: UnitShape) -> Unit:
    dtype, parts = shape.dtype, unit_parts(shape)
    wrapped = any(part.shared for part in parts) or dtype.param != dtype.master
    param, master, comm = (DTYPE_BYTES[d] for d in (dtype.param, dtype.master, dtype.communication))
    casts, upcasts = dtype.param != dtype.master, dtype.communication != dtype.param
    whole, shard = sum(part.whole for part in parts), sum(part.shard for part in parts)
    padded = sum(part.padded for part in parts)
    sharded = [part for part in parts if part.degree > 1]
    waiting = dtype.communication if upcasts else dtype.param
    vectors = sum(part.vectors for part in parts)
    shards = tuple(n for part in parts for n in part.shards)
    return Unit(
        wrapped=wrapped,
        gathers_each_use=wrapped and shape.strategy.shard.gathers_each_use,
        reduces_each_micro_batch=wrapped and shape.strategy.shard.reduces_each_micro_batch,
        parameter_bytes=sum(held_pieces_bytes(part, dtype) for part in parts),
        optimizer_bytes=MOMENTS * shard * DTYPE_BYTES[dtype.moments]
        + STEP_COUNTER_BYTES * len(shards),
        whole_bytes=padded * param if wrapped else 0,
        flat_bytes=sum(part.padded for part in sharded) * param if wrapped else 0,
        cast_bytes=sum(part.shard for part in sharded) * param if wrapped and casts else 0,
        gradient_bytes=whole * param,
        accumulated_bytes=whole * (comm if wrapped and upcasts else param),
        shard_gradient_bytes=sum(p.gradient_shard for p in parts) * master if wrapped else 0,
        reduce_input_bytes=padded * comm if wrapped else 0,
        reduce_scratch_bytes=(shard - sum(p.shard for p in sharded)) * comm if wrapped else 0,
        local_elements=whole,
        last_gradient_elements=sharded[-1].locals[-1] if sharded else 0,
        replicated_bytes=sum(p.shard for p in parts if _sums_shards(p)) * master
        if wrapped
        else 0,
        gather=_each_part(parts, _gather_forward, dtype, dtype.param) if wrapped else (),
        gather_backward=_each_part(parts, _gather_backward, dtype, dtype.param) if wrapped else (),
        refresh=tuple(item for part in parts for item in refresh_pieces(part, dtype)),
        settle=tuple(item for part in parts for item in settle_gradients(part, dtype)),
        reduce=_each_part(parts, _reduce_work, dtype, dtype.param) if wrapped else (),
        reduce_accumulated=_each_part(parts, _reduce_work, dtype, waiting) if wrapped else (),
        accumulate_shard=_each("add", _gradient_shards(parts), 3 * master, dtype.master),
        upcast=_upcast(parts, dtype) if wrapped and upcasts else (),
        accumulate_upcast=_accumulate_upcast(parts, dtype) if wrapped and upcasts else (),
        matrix_elements=shard - vectors,
        vector_elements=vectors,
        partial_shards=tuple(n for part in parts for n in part.partials),
        tied_bytes=_tied_elements(shape) * master,
        tied_elements=_tied_elements(shape),
    )


def _each_part(
    parts: tuple[Part, ...],
    work: Callable[[Part, DtypeRecord, str], tuple[Item, ...]],
    dtype: DtypeRecord,
    source_dtype: str,
) -> tuple[Item, ...]:
    return tuple(item for part in parts for item in work(part, dtype, source_dtype))


def _gradient_shards(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """Elements of each parameter's reduced gradient."""
    return tuple(n * (p.gradient_shard // p.shard) for p in parts for n in p.shards)


def _sums_shards(part: Part) -> bool:
    """Whether each reduction also sums shards over ranks that hold equal ones."""
    return part.replicas.size > 1 and not part.nests_gradients


def _gather_forward(n: Part, dtype: DtypeRecord, name: str) -> tuple[Item, ...]:
    if n.nests_parameters:
        return (*gather_pieces(n, n.parameters, name), *keep_secondary(n, name))
    return (*_gather_work(n, dtype, name), *keep_secondary(n, name))


def _gather_backward(n: Part, dtype: DtypeRecord, name: str) -> tuple[Item, ...]:
    if n.secondary > 1:
        return gather_pieces(n, n.secondary, name)
    return _gather_forward(n, dtype, name)


def _gather_work(n: Part, dtype: DtypeRecord, name: str) -> tuple[Item, ...]:
    """Cast and copy in, all-gather, copy out; a plain copy where nothing is sharded."""
    param, master = DTYPE_BYTES[name], DTYPE_BYTES[dtype.master]
    casts = name != dtype.master
    if n.degree == 1:
        cast = _each("cast", n.shards, param + master, name) if casts else ()
        return (*cast, *_each("copy", n.shards, 2 * param, name))
    work: list[Item] = []
    if casts:
        work.append(_kernel("copy", n.shard, n.shard * (param + master), name))
    work.append(_kernel("copy", n.shard, 2 * n.shard * param, name))
    work.append(Collective("all_gather", *n.group, n.padded * param, name))
    work.append(_kernel("copy", n.padded, 2 * n.padded * param, name))
    return tuple(work)


def _reduce_work(n: Part, dtype: DtypeRecord, source_dtype: str) -> tuple[Item, ...]:
    """Copy in, reduce-scatter over the shards, all-reduce over the replicas, cast back."""
    master, comm = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.communication]
    name, whole = dtype.communication, n.padded
    source_bytes = n.whole * DTYPE_BYTES[source_dtype]
    work: list[Item] = [_kernel("copy", whole, source_bytes + whole * comm, name)]
    if n.degree == 1:
        work.append(_kernel("div", n.shard, 2 * n.shard * comm, name))
        work.append(_kernel("copy", n.shard, 2 * n.shard * comm, name))
    else:
        group = n.inner(n.gradients) if n.nests_gradients else n.group
        work.append(Collective("reduce_scatter", *group, whole * comm, name))
    if _sums_shards(n):
        work.append(Collective("all_reduce", *n.replicas, n.shard * comm, name))
    if master != comm:
        kept = n.gradient_shard
        work.append(_kernel("cast", kept, kept * (comm + master), dtype.master))
    return tuple(work)


def _upcast(parts: tuple[Part, ...], dtype: DtypeRecord) -> tuple[Item, ...]:
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    wholes = tuple(n for part in parts for n in part.locals)
    return _each("cast", wholes, param + comm, dtype.communication)


def _accumulate_upcast(parts: tuple[Part, ...], dtype: DtypeRecord) -> tuple[Item, ...]:
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    wholes = tuple(n for part in parts for n in part.locals)
    return _each("add", wholes, param + 2 * comm, dtype.communication)


def update_work(
    matrices: int, vectors: int, tied_copy: int, dtype: DtypeRecord, clips: bool
) -> tuple[Item, ...]:
    """Norm of the gradients, clipping, and AdamW over a rank's elements.

    AdamW reads parameter, gradient and two moments and writes all but the gradient; matrices
    (with weight decay) and vectors (without) are a call each.

    Args:
        matrices: elements of parameters with two dimensions.
        vectors: elements of parameters with one.
        tied_copy: elements whose gradient another stage counts in the norm.
        dtype: number formats.
        clips: whether gradients are scaled to a norm.
    """
    name, master, moments = dtype.master, DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.moments]
    elements, counted = matrices + vectors, matrices + vectors - tied_copy
    work = [_kernel("foreach_norm", counted, counted * master, name)]
    if clips:
        work.append(_kernel("foreach_mul", elements, 2 * elements * master, name))
    for part in (matrices, vectors):
        traffic = part * (3 * master + 2 * MOMENTS * moments)
        if part:
            work.append(_kernel("fused_adamw", part, traffic, name))
    return tuple(work)


def _tied_elements(shape: UnitShape, degree: int | None = None) -> int:
    """Elements in a shard of the token table, which another stage may share."""
    degree = degree or shape.strategy.shard.optimizer
    for layer in shape.layers:
        if isinstance(layer, (EmbeddingLayer, HeadLayer)):
            rows = local_vocab(layer.vocab, shape.strategy.weight_split, shape.stack.vocab_multiple)
            return -(-rows // degree) * layer.hidden
    return 0


def _contiguous_unit(shape: UnitShape) -> Unit:
    """Whole compute parameters and gradient buffers; the optimizer shards (Megatron-LM)."""
    dtype, parts = shape.dtype, unit_parts(shape)
    whole, shard = sum(part.whole for part in parts), sum(part.shard for part in parts)
    vectors = sum(part.vectors for part in parts)
    param, gradient = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.gradient]
    has_master = dtype.param != dtype.master
    master_bytes = shard * DTYPE_BYTES[dtype.master] if has_master else 0
    reduce = tuple(item for part in parts for item in _buffer_reduction(part, dtype))
    return Unit(
        wrapped=False,
        gathers_each_use=False,
        reduces_each_micro_batch=False,
        parameter_bytes=whole * param,
        optimizer_bytes=MOMENTS * shard * DTYPE_BYTES[dtype.moments] + master_bytes,
        whole_bytes=0,
        flat_bytes=0,
        cast_bytes=0,
        gradient_bytes=0 if shape.stack.fusion.weight_gradient_accumulation else whole * param,
        accumulated_bytes=whole * gradient,
        shard_gradient_bytes=0,
        reduce_input_bytes=0,
        reduce_scratch_bytes=0,
        local_elements=whole,
        last_gradient_elements=0,
        replicated_bytes=0,
        gather=tuple(item for part in parts for item in _buffer_gather(part, dtype)),
        gather_backward=(),
        refresh=(),
        settle=(),
        reduce=reduce,
        reduce_accumulated=reduce,
        accumulate_shard=(),
        upcast=(),
        accumulate_upcast=(),
        matrix_elements=shard - vectors,
        vector_elements=vectors,
        partial_shards=tuple(n for part in parts for n in part.partials),
        tied_bytes=_tied_elements(shape, 1) * DTYPE_BYTES[dtype.master],
        tied_elements=_tied_elements(shape),
    )


def _buffer_reduction(part: Part, dtype: DtypeRecord) -> tuple[Item, ...]:
    """The reduction of a part's gradient buffer, once a step."""
    size, name = DTYPE_BYTES[dtype.communication], dtype.communication
    work: list[Item] = []
    if part.degree > 1:
        work.append(Collective("reduce_scatter", *part.group, part.padded * size, name))
    if part.replicas.size > 1:
        work.append(Collective("all_reduce", *part.replicas, part.shard * size, name))
    return tuple(work)


def _buffer_gather(part: Part, dtype: DtypeRecord) -> tuple[Item, ...]:
    """The all-gather of a part's parameters after an update that is sharded."""
    if part.degree == 1:
        return ()
    size = part.padded * DTYPE_BYTES[dtype.param]
    return (Collective("all_gather", *part.group, size, dtype.param),)


def partial_sum_work(shards: tuple[int, ...], tp: int, dtype: DtypeRecord) -> tuple[Item, ...]:
    """Flatten the shards, all-reduce over the tensor-parallel ranks, copy each back."""
    elements, master = sum(shards), DTYPE_BYTES[dtype.master]
    return (
        _kernel("copy", elements, 2 * elements * master, dtype.master),
        Collective("all_reduce", *RankGroup(tp, 1), elements * master, dtype.master),
        *_each("copy", shards, 2 * master, dtype.master),
    )
