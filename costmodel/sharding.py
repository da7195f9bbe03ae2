"""What sharding adds to a layer: gathering parameters, reducing gradients, updating.

A *unit* is the parameters that move together: one layer's, or embedding and head where they
share a weight in one chunk. Parameters are cut along dimension 0 into d parts, each padded to
ceil(rows / d) rows, as fully_shard does (zero3: Rajbhandari et al., 2020, section 5). Traffic:
an all-gather of the whole unit for each use, a reduce-scatter of its gradients over the d shard
ranks, an all-reduce of the shard over the replicas. With a ``contiguous`` stack parameters stay
whole and only optimizer states shard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ..spec.groups import RankGroup, replica_group, shard_group
from ..spec.kernels import Collective, Kernel
from ..spec.model import EmbeddingLayer, HeadLayer, Layer
from ..spec.parameters import ParameterSpec, layer_parameters
from ..spec.stack import StackSpec
from ..spec.strategy import LayerStrategy
from ..spec.workload import DTYPE_BYTES, DtypeRecord
from .layers import local_vocab
from .tape import Item

MOMENTS = 2
STEP_COUNTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class UnitShape:
    """What a unit's state depends on.

    ``layers`` is one layer, or an embedding and a head that share a weight.
    """

    layers: tuple[Layer, ...]
    strategy: LayerStrategy
    stage_ranks: int
    seq_len: int
    dtype: DtypeRecord
    stack: StackSpec


@dataclass(frozen=True, slots=True)
class Unit:
    """Sizes and work of one unit on its fullest rank.

    ``whole_bytes``: the gathered compute copy (0 where parameters are used in place).
    ``flat_bytes``: the communication buffer of a gather. ``reduce_input_bytes`` and
    ``reduce_scratch_bytes``: buffers of a reduction, during which the last parameter's gradient
    is still held; with ``replicated`` shards its result is held until the pass ends.
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
    replicated: bool
    gather: tuple[Item, ...]
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


def local_specs(shape: UnitShape) -> list[tuple[ParameterSpec, tuple[int, ...]]]:
    """The unit's parameters with their shapes on the fullest tensor-parallel rank."""
    found: list[tuple[ParameterSpec, tuple[int, ...]]] = []
    tied = len(shape.layers) > 1
    for layer in shape.layers:
        for spec in layer_parameters(layer, shape.seq_len):
            if tied and isinstance(layer, HeadLayer) and spec.name == "projection.weight":
                continue
            found.append((spec, _padded(layer, spec, shape)))
    return found


def _padded(layer: Layer, spec: ParameterSpec, shape: UnitShape) -> tuple[int, ...]:
    """The local shape; vocabulary rows include the stack's padding."""
    local = spec.local_shape(shape.strategy.tp)
    in_vocab = isinstance(layer, (EmbeddingLayer, HeadLayer)) and spec.split_dim == 0
    if not in_vocab or not isinstance(layer, (EmbeddingLayer, HeadLayer)):
        return local
    return (local_vocab(layer.vocab, shape.strategy.tp, shape.stack.vocab_multiple), *local[1:])


@lru_cache(maxsize=65536)
def lower_unit(shape: UnitShape) -> Unit:
    """Sizes and work of a unit under its strategy and stack."""
    if shape.stack.state_layout == "contiguous":
        return _contiguous_unit(shape)
    return _sharded_unit(shape)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Elements of a unit on one rank, in all and parameter by parameter.

    ``locals``: whole parameters; ``shards``: one padded shard of each; ``partials``: shards of
    those whose gradients are still parts of a sum over the tensor-parallel ranks.
    """

    whole: int
    shard: int
    vectors: int
    locals: tuple[int, ...]
    shards: tuple[int, ...]
    partials: tuple[int, ...]


def _counts(shape: UnitShape, degree: int) -> _Counts:
    whole, shards, partials, vectors = [], [], [], 0
    for spec, local in local_specs(shape):
        width = math.prod(local[1:])
        shard = -(-local[0] // degree) * width
        whole.append(local[0] * width)
        shards.append(shard)
        vectors += shard if len(local) == 1 else 0
        if _is_partial(spec, shape.strategy):
            partials.append(shard)
    return _Counts(sum(whole), sum(shards), vectors, tuple(whole), tuple(shards), tuple(partials))


def _is_partial(spec: ParameterSpec, strategy: LayerStrategy) -> bool:
    if strategy.tp == 1:
        return False
    by_sequence = spec.partial_gradient == "sequence_parallel" and strategy.megatron_sp
    return spec.partial_gradient == "always" or by_sequence


def _kernel(op: str, elements: int, traffic_bytes: int, dtype: str) -> Kernel:
    return Kernel(op, (elements,), dtype, 0, traffic_bytes)


def _each(op: str, elements: tuple[int, ...], bytes_each: int, dtype: str) -> tuple[Item, ...]:
    """One kernel a parameter."""
    return tuple(_kernel(op, n, n * bytes_each, dtype) for n in elements)


def _sharded_unit(shape: UnitShape) -> Unit:
    strategy, dtype = shape.strategy, shape.dtype
    wrapped = strategy.data_parallel(shape.stage_ranks) > 1 or dtype.param != dtype.master
    degree = strategy.shard.optimizer
    n = _counts(shape, degree)
    param, master, comm = (DTYPE_BYTES[d] for d in (dtype.param, dtype.master, dtype.communication))
    casts, upcasts = dtype.param != dtype.master, dtype.communication != dtype.param
    padded = n.shard * degree
    waiting = dtype.communication if upcasts else dtype.param
    return Unit(
        wrapped=wrapped,
        gathers_each_use=wrapped and strategy.shard.gathers_each_use,
        reduces_each_micro_batch=wrapped and strategy.shard.reduces_each_micro_batch,
        parameter_bytes=n.shard * master,
        optimizer_bytes=MOMENTS * n.shard * DTYPE_BYTES[dtype.moments]
        + STEP_COUNTER_BYTES * len(n.shards),
        whole_bytes=padded * param if wrapped else 0,
        flat_bytes=padded * param if wrapped and degree > 1 else 0,
        cast_bytes=n.shard * param if wrapped and casts and degree > 1 else 0,
        gradient_bytes=n.whole * param,
        accumulated_bytes=n.whole * (comm if wrapped and upcasts else param),
        shard_gradient_bytes=n.shard * master if wrapped else 0,
        reduce_input_bytes=padded * comm if wrapped else 0,
        reduce_scratch_bytes=n.shard * comm if wrapped and degree == 1 else 0,
        local_elements=n.whole,
        last_gradient_elements=n.locals[-1] if degree > 1 else 0,
        replicated=replica_group(strategy, shape.stage_ranks).size > 1,
        gather=_gather_work(shape, n, degree) if wrapped else (),
        reduce=_reduce_work(shape, n, degree, dtype.param) if wrapped else (),
        reduce_accumulated=_reduce_work(shape, n, degree, waiting) if wrapped else (),
        accumulate_shard=_each("add", n.shards, 3 * master, dtype.master),
        upcast=_upcast(n, dtype) if wrapped and upcasts else (),
        accumulate_upcast=_accumulate_upcast(n, dtype) if wrapped and upcasts else (),
        matrix_elements=n.shard - n.vectors,
        vector_elements=n.vectors,
        partial_shards=n.partials,
        tied_bytes=_tied_elements(shape, degree) * master,
        tied_elements=_tied_elements(shape, degree),
    )


def _gather_work(shape: UnitShape, n: _Counts, degree: int) -> tuple[Item, ...]:
    """Cast and copy in, all-gather, copy out; a plain copy where nothing is sharded."""
    dtype = shape.dtype
    param, master = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.master]
    casts = dtype.param != dtype.master
    if degree == 1:
        cast = _each("cast", n.shards, param + master, dtype.param) if casts else ()
        return (*cast, *_each("copy", n.shards, 2 * param, dtype.param))
    whole = n.shard * degree
    group = shard_group(shape.strategy)
    work: list[Item] = []
    if casts:
        work.append(_kernel("copy", n.shard, n.shard * (param + master), dtype.param))
    work.append(_kernel("copy", n.shard, 2 * n.shard * param, dtype.param))
    work.append(Collective("all_gather", *group, whole * param, dtype.param))
    work.append(_kernel("copy", whole, 2 * whole * param, dtype.param))
    return tuple(work)


def _reduce_work(shape: UnitShape, n: _Counts, degree: int, source_dtype: str) -> tuple[Item, ...]:
    """Copy in, reduce-scatter over the shards, all-reduce over the replicas, cast back."""
    dtype = shape.dtype
    master, comm = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.communication]
    name, whole = dtype.communication, n.shard * degree
    source_bytes = n.whole * DTYPE_BYTES[source_dtype]
    work: list[Item] = [_kernel("copy", whole, source_bytes + whole * comm, name)]
    if degree == 1:
        work.append(_kernel("div", n.shard, 2 * n.shard * comm, name))
        work.append(_kernel("copy", n.shard, 2 * n.shard * comm, name))
    else:
        group = shard_group(shape.strategy)
        work.append(Collective("reduce_scatter", *group, whole * comm, name))
    replicas = replica_group(shape.strategy, shape.stage_ranks)
    if replicas.size > 1:
        work.append(Collective("all_reduce", *replicas, n.shard * comm, name))
    if master != comm:
        work.append(_kernel("cast", n.shard, n.shard * (comm + master), dtype.master))
    return tuple(work)


def _upcast(n: _Counts, dtype: DtypeRecord) -> tuple[Item, ...]:
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return _each("cast", n.locals, param + comm, dtype.communication)


def _accumulate_upcast(n: _Counts, dtype: DtypeRecord) -> tuple[Item, ...]:
    param, comm = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.communication]
    return _each("add", n.locals, param + 2 * comm, dtype.communication)


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


def _tied_elements(shape: UnitShape, degree: int) -> int:
    """Elements in a shard of the token table, which another stage may share."""
    for layer in shape.layers:
        if isinstance(layer, (EmbeddingLayer, HeadLayer)):
            rows = local_vocab(layer.vocab, shape.strategy.tp, shape.stack.vocab_multiple)
            return -(-rows // degree) * layer.hidden
    return 0


def _contiguous_unit(shape: UnitShape) -> Unit:
    """Whole compute parameters and gradient buffers; the optimizer shards (Megatron-LM)."""
    strategy, dtype = shape.strategy, shape.dtype
    degree = strategy.shard.optimizer
    n = _counts(shape, degree)
    param, gradient = DTYPE_BYTES[dtype.param], DTYPE_BYTES[dtype.gradient]
    has_master = dtype.param != dtype.master
    master_bytes = n.shard * DTYPE_BYTES[dtype.master] if has_master else 0
    reduce, gather = _contiguous_traffic(shape, n, degree)
    return Unit(
        wrapped=False,
        gathers_each_use=False,
        reduces_each_micro_batch=False,
        parameter_bytes=n.whole * param,
        optimizer_bytes=MOMENTS * n.shard * DTYPE_BYTES[dtype.moments] + master_bytes,
        whole_bytes=0,
        flat_bytes=0,
        cast_bytes=0,
        gradient_bytes=0 if shape.stack.fusion.weight_gradient_accumulation else n.whole * param,
        accumulated_bytes=n.whole * gradient,
        shard_gradient_bytes=0,
        reduce_input_bytes=0,
        reduce_scratch_bytes=0,
        local_elements=n.whole,
        last_gradient_elements=0,
        replicated=False,
        gather=gather,
        reduce=reduce,
        reduce_accumulated=reduce,
        accumulate_shard=(),
        upcast=(),
        accumulate_upcast=(),
        matrix_elements=n.shard - n.vectors,
        vector_elements=n.vectors,
        partial_shards=n.partials,
        tied_bytes=_tied_elements(shape, 1) * DTYPE_BYTES[dtype.master],
        tied_elements=_tied_elements(shape, degree),
    )


def _contiguous_traffic(
    shape: UnitShape, n: _Counts, degree: int
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Gradient reduction once a step, and the parameter all-gather after a sharded update."""
    dtype = shape.dtype
    replicas = replica_group(shape.strategy, shape.stage_ranks)
    gradient = DTYPE_BYTES[dtype.communication]
    reduce: list[Item] = []
    gather: list[Item] = []
    if degree > 1:
        group = shard_group(shape.strategy)
        whole = n.shard * degree
        reduce.append(Collective("reduce_scatter", *group, whole * gradient, dtype.communication))
        gather.append(
            Collective("all_gather", *group, whole * DTYPE_BYTES[dtype.param], dtype.param)
        )
    if replicas.size > 1:
        size = n.shard * gradient
        reduce.append(Collective("all_reduce", *replicas, size, dtype.communication))
    return tuple(reduce), tuple(gather)


def partial_sum_work(shards: tuple[int, ...], tp: int, dtype: DtypeRecord) -> tuple[Item, ...]:
    """Flatten the shards, all-reduce over the tensor-parallel ranks, copy each back."""
    elements, master = sum(shards), DTYPE_BYTES[dtype.master]
    return (
        _kernel("copy", elements, 2 * elements * master, dtype.master),
        Collective("all_reduce", *RankGroup(tp, 1), elements * master, dtype.master),
        *_each("copy", shards, 2 * master, dtype.master),
    )
