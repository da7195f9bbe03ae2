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
from dataclasses import replace

from ..spec.formats import DTYPE_BYTES, weight_bytes
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
from .optimizers import UpdateShare, joined, state_bytes, update_share
from .tape import Item
from .unit import Unit
from .unit_parts import Part, UnitShape, unit_parts

STEP_COUNTER_BYTES = 4


def _kernel(op: str, elements: int, traffic_bytes: int, dtype: str) -> Kernel:
    return Kernel(op, (elements,), dtype, 0, traffic_bytes)


def _each(op: str, elements: tuple[int, ...], bytes_each: int, dtype: str) -> tuple[Item, ...]:
    """One kernel a parameter."""
    return tuple(_kernel(op, n, n * bytes_each, dtype) for n in elements)


def sharded_unit(shape: UnitShape) -> Unit:
    """Parameters stored as shards in the master's format, gathered into a compute copy (FSDP2).

    Frozen ones are stored in their own format, have no gradient, and are gathered only where
    they are sharded.
    """
    dtype, every = shape.dtype, unit_parts(shape)
    parts = tuple(part for part in every if part.trained)
    frozen = tuple(part for part in every if not part.trained and part.degree > 1)
    kept = replace(dtype, master=shape.base_dtype)
    wrapped = any(part.shared for part in parts) or bool(parts and dtype.param != dtype.master)
    wrapped = wrapped or bool(frozen)
    param, master, comm = (DTYPE_BYTES[d] for d in (dtype.param, dtype.master, dtype.communication))
    casts, upcasts = dtype.param != dtype.master, dtype.communication != dtype.param
    whole, shard = sum(part.whole for part in parts), sum(part.shard for part in parts)
    padded = sum(part.padded for part in parts)
    gathered = padded + sum(part.padded for part in frozen)
    sharded = [part for part in parts if part.degree > 1]
    waiting = dtype.communication if upcasts else dtype.param
    shards = tuple(n for part in parts for n in part.shards)
    flat = sum(part.padded for part in (*sharded, *frozen))
    return Unit(
        wrapped=wrapped,
        gathers_each_use=wrapped and shape.strategy.shard.gathers_each_use,
        reduces_each_micro_batch=wrapped and shape.strategy.shard.reduces_each_micro_batch,
        parameter_bytes=sum(held_pieces_bytes(p, dtype if p.trained else kept) for p in every)
        + narrow_copies_bytes(shape, every),
        optimizer_bytes=unit_states(shape, parts) + STEP_COUNTER_BYTES * len(shards),
        whole_bytes=gathered * param if wrapped else 0,
        flat_bytes=flat * param if wrapped else 0,
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
        gather=_gathers(_gather_forward, shape, parts, frozen) if wrapped else (),
        gather_backward=_gathers(_gather_backward, shape, parts, frozen) if wrapped else (),
        refresh=tuple(item for part in parts for item in refresh_pieces(part, dtype)),
        settle=tuple(item for part in parts for item in settle_gradients(part, dtype)),
        reduce=_each_part(parts, _reduce_work, dtype, dtype.param) if wrapped else (),
        reduce_accumulated=_each_part(parts, _reduce_work, dtype, waiting) if wrapped else (),
        accumulate_shard=_each("add", _gradient_shards(parts), 3 * master, dtype.master),
        upcast=_upcast(parts, dtype) if wrapped and upcasts else (),
        accumulate_upcast=_accumulate_upcast(parts, dtype) if wrapped and upcasts else (),
        publish=quantised_weights(shape, every),
        update=unit_update(shape, parts, sends_back=True),
        partial_shards=tuple(n for part in parts for n in part.partials),
        tied_bytes=tied_elements_of(shape) * master,
        tied_elements=tied_elements_of(shape),
    )


def unit_states(shape: UnitShape, parts: tuple[Part, ...]) -> int:
    """Bytes of the optimizer's states of trained parts."""
    tensors = (tensor for part in parts for tensor in part.tensors)
    return state_bytes(shape.optimizer, shape.dtype, tensors)


def unit_update(shape: UnitShape, parts: tuple[Part, ...], sends_back: bool) -> UpdateShare:
    """What the trained parts add to their rank's update."""
    return joined(
        update_share(
            shape.optimizer,
            part.tensors,
            (part.shard - part.vectors, part.vectors),
            (part.group, part.split),
            sends_back,
        )
        for part in parts
    )


def narrow_copies_bytes(shape: UnitShape, parts: tuple[Part, ...]) -> int:
    """Quantised copies of weights, both ways round, where the stack keeps them."""
    if shape.dtype.matmul is None or shape.stack.narrow_weights != "cached":
        return 0
    return 2 * weight_bytes(sum(part.narrow for part in parts), shape.dtype.matmul)


def quantised_weights(shape: UnitShape, parts: tuple[Part, ...]) -> tuple[Item, ...]:
    """Once a step the kernel that makes those copies anew, of what is trained."""
    narrow = shape.dtype.matmul
    elements = sum(part.narrow for part in parts if part.trained)
    if narrow is None or not elements or shape.stack.narrow_weights != "cached":
        return ()
    copies_bytes = 2 * weight_bytes(elements, narrow)
    traffic_bytes = elements * DTYPE_BYTES[shape.dtype.param] + copies_bytes
    return (_kernel("quantize", elements, traffic_bytes, narrow),)


def gathered_bytes(shape: UnitShape, part: Part) -> int:
    """Bytes of a gather of a whole part, linear weights narrow where the stack gathers them so."""
    size, narrow = DTYPE_BYTES[shape.dtype.param], shape.dtype.matmul
    if narrow is None or not shape.stack.narrow_gather:
        return part.padded * size
    return (part.padded - part.narrow) * size + weight_bytes(part.narrow, narrow)


def _gathers(
    work: Callable[[Part, DtypeRecord, str], tuple[Item, ...]],
    shape: UnitShape,
    parts: tuple[Part, ...],
    frozen: tuple[Part, ...],
) -> tuple[Item, ...]:
    """Gathers of trained parts, cast from the master's format, and of frozen ones."""
    dtype, kept = shape.dtype, replace(shape.dtype, master=shape.base_dtype)
    found: list[Item] = []
    for part in (*parts, *frozen):
        for item in work(part, dtype if part.trained else kept, dtype.param):
            if isinstance(item, Collective) and shape.stack.narrow_gather:
                item = item._replace(payload_bytes=gathered_bytes(shape, part))
            found.append(item)
    return tuple(found)


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


def tied_elements_of(shape: UnitShape, degree: int | None = None) -> int:
    """Elements in a shard of the token table, which another stage may share."""
    degree = degree or shape.strategy.shard.optimizer
    for number, layer in enumerate(shape.layers):
        trained = shape.training(number).weights
        if trained and isinstance(layer, (EmbeddingLayer, HeadLayer)):
            rows = local_vocab(layer.vocab, shape.strategy.weight_split, shape.stack.vocab_multiple)
            return -(-rows // degree) * layer.hidden
    return 0


def partial_sum_work(shards: tuple[int, ...], tp: int, dtype: DtypeRecord) -> tuple[Item, ...]:
    """Flatten the shards, all-reduce over the tensor-parallel ranks, copy each back."""
    elements, master = sum(shards), DTYPE_BYTES[dtype.master]
    return (
        _kernel("copy", elements, 2 * elements * master, dtype.master),
        Collective("all_reduce", *RankGroup(tp, 1), elements * master, dtype.master),
        *_each("copy", shards, 2 * master, dtype.master),
    )
