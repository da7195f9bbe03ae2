"""quantized_communication: the price of 4 and 8 bits on the wire.

Papers: Jia et al., SDP4Bit (NeurIPS 2024, arXiv:2410.15526), sections 3 and 4; Wang et al.,
ZeRO++ (arXiv:2306.10209), sections 3.1 and 3.3.

The idea: a rank quantizes what it sends in blocks, each with a scale. Weights travel in 8 bits, or
as 4-bit differences to those that every rank computes with, so that errors do not add up from step
to step. Gradients are exchanged in two hops, inside nodes and then between them, each rounded
stochastically, after a Hadamard transform that spreads outliers.

Symbols: n padded elements of a block's weights over N = J · L ranks, L of a node; s = n / N; p and
c bytes of a weight and of a gradient; q(m) = m · bits / 8 + 4 · m / block bytes on the wire.

Cost: weights: an all-gather of N · q(s) in place of n · p. Gradients: an all-to-all of q(n) over L
ranks and one of q(n / L) over J in place of a reduce-scatter of n · c. Kernels stream what they
read and write once: quantizing s · p + q(s), dequantizing N · q(s) + n · p, and in each hop as much
of its gradients; levels and scales are joined for the wire and parted after it. Differences keep,
where fully_shard frees parameters, the copy that they are taken to: (n + s) · p bytes. A second
copy over D ranks in 8 bits: quantizing n / D · p + q(n / D) after a forward's gather, kept as it
travels; an all-gather of D · q(n / D) for the backward and dequantizing it. Where degrees nest (P
below G below N), weights above are those of the once-a-step gather of n / P over N / P ranks, and
gradients those of the once-a-step reduction of n / G over N / G.

Takeaway: bytes between nodes fall to 0.25 (weights) and 0.27 (gradients) of bf16's; it pays where
they are not hidden, the more the fewer micro-batches a step has.

Worked number: 10^8 weights in bf16 over 16 nodes of 8: 200 MB gathered become 50.2, and 175 MB of
gradients that leave a device become 6.3 over the network and 88.2 inside the node.

Limits: dense blocks, all parameters of a block alike; embeddings and heads stay plain. Hops do not
overlap one another. Its kernels stand in ``exposed_dp``, with the traffic that they shorten. Their
rates are those of ``plan profile``; without one, of streaming kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...spec.parallel.rank_groups import RankGroup, inner_group
from ...spec.report.quantize_kernels import kernel_op
from ...spec.report.work_items import Collective, Kernel, streamed
from ...spec.techniques.quantized_communication import (
    NAME,
    QuantizedCommunication,
    gathered_ranks,
    hop_groups,
    reduced_ranks,
)
from ...spec.techniques.quantized_communication import TECHNIQUE as VALUE
from ...spec.workload.number_formats import DTYPE_BYTES, ELEMENT_BYTES
from ..sharding.fsdp_unit import FsdpUnit
from ..sharding.param_groups import UnitShape
from ..sharding.state_layouts import lower_unit
from ..symbolic.tape import WorkItem
from ..technique import TechniquePrice, with_addition

WIRE = "int8"
SCALE_BYTES = FLOAT_BYTES = DTYPE_BYTES["fp32"]
COUNTER_BYTES = ELEMENT_BYTES["int64"]
"""Of a block's reductions so far, which chance depends on."""


def wire_bytes(elements: int, bits: int, block: int) -> int:
    """Bytes of levels, the last block filled, and of scales."""
    blocks = -(-elements // block)
    return blocks * (block * bits // 8 + SCALE_BYTES)


def unit(shape: UnitShape, own: FsdpUnit) -> FsdpUnit:
    """A block's states with weights and gradients in fewer bits on the wire."""
    value = VALUE.of(shape.strategy)
    if not isinstance(value, QuantizedCommunication):
        return own
    if value.second_copy != "unchanged":
        own = _with_second_copy(shape, own, value)
    if value.weights != "unchanged":
        own = _with_weights(shape, own, value)
    return own if value.gradients == "unchanged" else _with_gradients(shape, own, value)


def _with_second_copy(shape: UnitShape, own: FsdpUnit, value: QuantizedCommunication) -> FsdpUnit:
    """Second copies in 8 bits: kept after a forward's gather, gathered for the backward."""
    degree = shape.strategy.shard.secondary_parameters
    ranks = inner_group(shape.strategy, degree)
    alone = replace(shape.strategy.shard, secondary_parameters=1)
    without = lower_unit(replace(shape, strategy=replace(shape.strategy, shard=alone)))
    kept, forward, backward = 0, list[WorkItem](), list[WorkItem]()
    for item in without.gather.forward:
        forward.append(item)
        if not isinstance(item, Collective):
            backward.append(item)
            continue
        size, message = _copy_message(shape, value, item, degree)
        kept += message
        forward += _keep_copy(shape, item, degree, message)
        backward.append(Collective("all_gather", *ranks, message * degree, WIRE))
        backward += _read_copy(shape, item, size, message * degree)
    first, *others = own.gathers
    first = first._replace(cast_bytes=first.cast_bytes + 2 * kept * degree)
    copied = own.parameter_bytes - lower_unit(shape).parameter_bytes
    own = replace(
        own,
        parameter_bytes=without.parameter_bytes + copied,
        gather=own.gather._replace(
            forward=tuple(forward), backward=tuple(backward) if own.gather.backward else ()
        ),
        gathers=(first, *others),
    )
    return with_addition(own, NAME, resident_bytes=kept)


def _copy_message(
    shape: UnitShape, value: QuantizedCommunication, plain: Collective, degree: int
) -> tuple[int, int]:
    """Elements of a gather, 0 where they are packed already, and bytes of a rank's piece of it."""
    if plain.dtype != shape.dtype.param:
        return 0, plain.payload_bytes // degree
    elements = plain.payload_bytes // DTYPE_BYTES[plain.dtype]
    return elements, wire_bytes(elements // degree, 8, value.second_block)


def _keep_copy(
    shape: UnitShape, plain: Collective, degree: int, message: int
) -> tuple[Kernel, ...]:
    if plain.dtype != shape.dtype.param:
        return (streamed("copy", message, 2 * message, WIRE),)
    size = DTYPE_BYTES[plain.dtype]
    piece = plain.payload_bytes // size // degree
    return (
        streamed(kernel_op("quantise", 8), piece, piece * size + message, WIRE),
        streamed("copy", message, 2 * message, WIRE),
    )


def _read_copy(
    shape: UnitShape, plain: Collective, elements: int, received: int
) -> tuple[Kernel, ...]:
    if not elements:
        return ()
    traffic = received + elements * DTYPE_BYTES[shape.dtype.param]
    return (
        streamed("copy", received, 2 * received, WIRE),
        streamed(kernel_op("dequantise", 8), elements, traffic, plain.dtype),
    )


def _with_weights(shape: UnitShape, own: FsdpUnit, value: QuantizedCommunication) -> FsdpUnit:
    size, ranks = DTYPE_BYTES[shape.dtype.param], gathered_ranks(shape.strategy)
    gathered = _gathers(shape, (*own.gather.outer, *own.gather.forward, *own.post_update))
    elements = sum(item.payload_bytes for item in gathered) // size
    scratch = (
        2 * ranks.size * wire_bytes(elements // ranks.size, value.weight_bits, value.weight_block)
    )

    def sent(items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
        chosen = _gathers(shape, items)
        return tuple(
            part
            for item in items
            for part in (gather_work(shape, value, item) if item in chosen else (item,))
        )

    own = replace(
        own,
        gather=own.gather._replace(
            forward=sent(own.gather.forward),
            backward=sent(own.gather.backward),
            outer=sent(own.gather.outer),
        ),
        post_update=sent(own.post_update),
    )
    if not own.gathers:
        return own
    first, *others = own.gathers
    first = first._replace(cast_bytes=first.cast_bytes + scratch)
    if not _keeps_a_copy(shape, value):
        return replace(own, gathers=(first, *others))
    kept = elements + elements // ranks.size
    first = first._replace(flat_bytes=0)
    return with_addition(replace(own, gathers=(first, *others)), NAME, resident_bytes=kept * size)


def _keeps_a_copy(shape: UnitShape, value: QuantizedCommunication) -> bool:
    """True if weights are freed that differences are taken to."""
    return value.weights == "diff4" and shape.stack.state_layout == "fsdp2"


def _gathers(shape: UnitShape, items: Iterable[WorkItem]) -> tuple[Collective, ...]:
    """All-gathers of weights in fewer bits."""
    ranks, name = gathered_ranks(shape.strategy), shape.dtype.param
    return tuple(
        item
        for item in items
        if isinstance(item, Collective)
        and (item.kind, item.ranks, item.stride, item.dtype) == ("all_gather", *ranks, name)
    )


def gather_work(
    shape: UnitShape, value: QuantizedCommunication, plain: Collective
) -> tuple[WorkItem, ...]:
    """An all-gather of weights in fewer bits, in place of a plain one."""
    size, name = DTYPE_BYTES[plain.dtype], plain.dtype
    elements = plain.payload_bytes // size
    shard = elements // plain.ranks
    sent = wire_bytes(shard, value.weight_bits, value.weight_block)
    work: list[Kernel | Collective] = []
    source_bytes = size
    if value.weights == "diff4":
        work += _difference(shape, value, shard)
        source_bytes = FLOAT_BYTES
    bits = value.weight_bits
    work.append(streamed(kernel_op("quantise", bits), shard, shard * source_bytes + sent, WIRE))
    work.append(streamed("copy", sent, 2 * sent, WIRE))
    whole = sent * plain.ranks
    work.append(Collective("all_gather", plain.ranks, plain.stride, whole, WIRE))
    work.append(streamed("copy", whole, 2 * whole, WIRE))
    if value.weights == "diff4":
        traffic = whole + 2 * elements * size
        work.append(streamed(kernel_op("dequantise_add", bits), elements, traffic, name))
        if _keeps_a_copy(shape, value):
            work.append(streamed("copy", shard, 2 * shard * size, name))
    else:
        traffic = whole + elements * size
        work.append(streamed(kernel_op("dequantise", bits), elements, traffic, name))
    return tuple(work)


def _difference(shape: UnitShape, value: QuantizedCommunication, shard: int) -> tuple[Kernel, ...]:
    """Differences of updated weights to those in use; with a kept copy, its own part put back."""
    size, name = DTYPE_BYTES[shape.dtype.param], shape.dtype.param
    if not _keeps_a_copy(shape, value):
        updated = DTYPE_BYTES[shape.dtype.master]
        return (streamed("sub", shard, shard * (updated + size + FLOAT_BYTES), "fp32"),)
    return (
        streamed("sub", shard, shard * (2 * size + FLOAT_BYTES), "fp32"),
        streamed("copy", shard, 2 * shard * size, name),
    )


def _with_gradients(shape: UnitShape, own: FsdpUnit, value: QuantizedCommunication) -> FsdpUnit:
    name = shape.dtype.communication
    whole = reduced_ranks(shape.strategy)
    hops = hop_groups(shape.strategy, value)

    def sent(items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
        work: list[WorkItem] = []
        for item in items:
            if isinstance(item, Collective) and _is_scatter(item, whole, name):
                work += reduce_work(value, item, hops)
            else:
                work.append(item)
        return tuple(work)

    reduce, buffers = own.reduce, own.reduce_bytes
    every = (*reduce.fresh, *reduce.outer)
    scattered = (item for item in every if _is_scatter(item, whole, name))
    elements = sum(
        item.payload_bytes // DTYPE_BYTES[name]
        for item in scattered
        if isinstance(item, Collective)
    )
    own = replace(
        own,
        reduce=reduce._replace(
            fresh=sent(reduce.fresh),
            accumulated=sent(reduce.accumulated),
            outer=sent(reduce.outer),
        ),
        reduce_bytes=buffers._replace(
            scratch_bytes=buffers.scratch_bytes + _scratch(value, elements, name, hops)
        ),
    )
    return with_addition(own, NAME, resident_bytes=COUNTER_BYTES)


def _is_scatter(item: WorkItem, whole: RankGroup, dtype: str) -> bool:
    if not isinstance(item, Collective):
        return False
    return (item.kind, item.ranks, item.stride, item.dtype) == ("reduce_scatter", *whole, dtype)


def _scratch(
    value: QuantizedCommunication, elements: int, dtype: str, hops: tuple[RankGroup, RankGroup]
) -> int:
    """Bytes beside the buffer of gradients: their order by place in the node, both ways sent."""
    inner, outer = hops
    if inner.size == 1:
        return 2 * wire_bytes(elements, value.outer_bits, value.outer_block)
    ordered = elements * DTYPE_BYTES[dtype] if outer.size > 1 else 0
    sent = wire_bytes(elements, value.inner_bits, value.inner_block)
    return ordered + 2 * sent + elements // inner.size * FLOAT_BYTES


def reduce_work(
    value: QuantizedCommunication, plain: Collective, hops: tuple[RankGroup, RankGroup]
) -> tuple[WorkItem, ...]:
    """Two hops of quantized gradients in place of a reduce-scatter."""
    inner, outer = hops
    size, work = DTYPE_BYTES[plain.dtype], list[WorkItem]()
    elements = plain.payload_bytes // size
    name: str = plain.dtype
    if inner.size > 1:
        if outer.size > 1:
            work.append(streamed("copy", elements, 2 * elements * size, plain.dtype))
        form = value.inner_bits, value.inner_block
        ends = name if outer.size == 1 else "fp32"
        work += _hop(elements, name, ends, inner, form, value.hadamard)
        elements, name = elements // inner.size, ends
    if outer.size > 1:
        form = value.outer_bits, value.outer_block
        work += _hop(elements, name, plain.dtype, outer, form, value.hadamard)
    return tuple(work)


def _hop(
    elements: int,
    begins: str,
    ends: str,
    ranks: RankGroup,
    form: tuple[int, int],
    hadamard: bool,
) -> list[WorkItem]:
    """Quantize, exchange, dequantize and sum; from one number format to another."""
    kept = elements // ranks.size
    sent, bits = ranks.size * wire_bytes(kept, *form), form[0]
    encode = kernel_op("quantise", bits, stochastic=True, hadamard=hadamard)
    decode = kernel_op("dequantise_sum", bits, hadamard=hadamard)
    return [
        streamed(encode, elements, elements * DTYPE_BYTES[begins] + sent, WIRE),
        streamed("copy", sent, 2 * sent, WIRE),
        Collective("all_to_all", *ranks, sent, WIRE),
        streamed("copy", sent, 2 * sent, WIRE),
        streamed(decode, kept, sent + kept * DTYPE_BYTES[ends], ends),
    ]


TECHNIQUE = TechniquePrice(value=VALUE, unit=unit)
