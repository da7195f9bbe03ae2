"""What sharding adds to a layer: gathering parameters, reducing gradients, updating.

A *unit* is the parameters that move together: one layer's, or embedding and head where they
share a weight in one chunk. Parameters are cut along dimension 0 into d parts, each padded to
ceil(rows / d) rows, as fully_shard does (zero3: Rajbhandari et al., 2020, section 5). Traffic:
an all-gather of the whole unit for each use, a reduce-scatter of its gradients over the d shard
ranks, an all-reduce of the shard over the replicas. With a ``contiguous`` stack parameters stay
whole and only optimizer states shard. Degrees that nest add the traffic of ``nested_sharding``:
``outer_gather`` before a step's first gather, ``outer_reduce`` after its last reduction. Dense
parameters
and experts of one unit do this over ranks of their own (see ``param_groups``).
"""

from __future__ import annotations

from ...spec.model.model_spec import EmbeddingLayer, HeadLayer
from ...spec.report.work_items import streamed
from ...spec.workload.number_formats import DTYPE_BYTES, weight_bytes
from ..layers.heads import local_vocab
from ..symbolic.tape import WorkItem
from .fsdp_unit import FsdpUnit
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
    """Parameters stored as shards in the master's format, gathered into a compute copy (FSDP2).

    Frozen ones are stored in their own format, have no gradient, and are gathered only where
    they are sharded.
    """
    dtype, every = shape.dtype, param_groups(shape)
    parts = tuple(part for part in every if part.trained)
    frozen = tuple(part for part in every if not part.trained and part.degree > 1)
    wrapped = any(part.shared for part in parts) or bool(parts and dtype.param != dtype.master)
    wrapped = wrapped or bool(frozen)
    param, master, comm = (DTYPE_BYTES[d] for d in (dtype.param, dtype.master, dtype.communication))
    upcasts = dtype.communication != dtype.param
    whole, shard = sum(part.whole for part in parts), sum(part.shard for part in parts)
    padded = sum(part.padded for part in parts)
    sharded = [part for part in parts if part.degree > 1]
    waiting = dtype.communication if upcasts else dtype.param
    shards = tuple(n for part in parts for n in part.shards)
    back = any(shape.training(number).backward for number in range(len(shape.layers)))
    return FsdpUnit(
        wrapped=wrapped,
        gathers_each_use=wrapped and shape.strategy.shard.gathers_each_use,
        reduces_each_micro_batch=wrapped and shape.strategy.shard.reduces_each_micro_batch,
        parameter_bytes=sum(stored_pieces_bytes(p, shape.formats(p.trained)) for p in every)
        + narrow_copies_bytes(shape, every),
        optimizer_bytes=unit_states(shape, parts) + STEP_COUNTER_BYTES * len(shards),
        gathers=gather_bytes(shape, parts, frozen) if wrapped else (),
        gradient_bytes=whole * param,
        accumulated_bytes=whole * (comm if wrapped and upcasts else param),
        shard_gradient_bytes=sum(p.gradient_shard for p in parts) * master if wrapped else 0,
        reduce_input_bytes=padded * comm if wrapped else 0,
        reduce_scratch_bytes=(shard - sum(p.shard for p in sharded)) * comm if wrapped else 0,
        local_elements=whole,
        last_gradient_elements=sharded[-1].locals[-1] if sharded else 0,
        replicated_bytes=sum(p.shard for p in parts if reduces_over_replicas(p)) * master
        if wrapped
        else 0,
        gather=gathers(gather_forward, shape, parts, frozen) if wrapped else (),
        gather_backward=gathers(gather_backward, shape, parts, frozen) if wrapped and back else (),
        outer_gather=for_each_group(parts, outer_gather_work, dtype),
        outer_reduce=for_each_group(parts, outer_reduce_work, dtype),
        reduce=for_each_group(parts, reduce_work, dtype, dtype.param) if wrapped else (),
        reduce_accumulated=for_each_group(parts, reduce_work, dtype, waiting) if wrapped else (),
        accumulate_shard=for_each_group(parts, accumulate_shard, dtype),
        upcast=for_each_group(parts, upcast_work, dtype) if wrapped and upcasts else (),
        accumulate_upcast=for_each_group(parts, accumulate_upcast, dtype)
        if wrapped and upcasts
        else (),
        post_update=requantize_weights(shape, every),
        update=unit_update(shape, parts, sends_back=True),
        partial_shards=tuple(n for part in parts for n in part.partials),
        tied_bytes=tied_elements_of(shape) * master,
        tied_elements=tied_elements_of(shape),
    )


def unit_states(shape: UnitShape, parts: tuple[ParamGroup, ...]) -> int:
    """Bytes of the optimizer's states of trained parts."""
    tensors = (tensor for part in parts for tensor in part.tensors)
    return state_bytes(shape.optimizer, shape.dtype, tensors)


def unit_update(shape: UnitShape, parts: tuple[ParamGroup, ...], sends_back: bool) -> UpdateShare:
    """What the trained parts add to their rank's update."""
    return merged_share(
        update_share(
            shape.optimizer,
            part.tensors,
            (part.shard - part.vectors, part.vectors),
            (part.group, part.split),
            sends_back,
        )
        for part in parts
    )


def narrow_copies_bytes(shape: UnitShape, parts: tuple[ParamGroup, ...]) -> int:
    """Quantised copies of weights, both ways round, where the stack keeps them."""
    if shape.dtype.matmul is None or shape.stack.narrow_weights != "cached":
        return 0
    return 2 * weight_bytes(sum(part.narrow for part in parts), shape.dtype.matmul)


def requantize_weights(shape: UnitShape, parts: tuple[ParamGroup, ...]) -> tuple[WorkItem, ...]:
    """Once a step the kernel that makes those copies anew, of what is trained."""
    narrow = shape.dtype.matmul
    elements = sum(part.narrow for part in parts if part.trained)
    if narrow is None or not elements or shape.stack.narrow_weights != "cached":
        return ()
    copies_bytes = 2 * weight_bytes(elements, narrow)
    traffic_bytes = elements * DTYPE_BYTES[shape.dtype.param] + copies_bytes
    return (streamed("quantize", elements, traffic_bytes, narrow),)


def tied_elements_of(shape: UnitShape, degree: int | None = None) -> int:
    """Elements in a shard of the token table, which another stage may share."""
    degree = degree or shape.strategy.shard.optimizer
    for number, layer in enumerate(shape.layers):
        trained = shape.training(number).weights
        if trained and isinstance(layer, (EmbeddingLayer, HeadLayer)):
            rows = local_vocab(layer.vocab, shape.strategy.weight_split, shape.stack.vocab_multiple)
            return -(-rows // degree) * layer.hidden
    return 0
