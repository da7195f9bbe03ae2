"""cpu_offload: the price of states in the host's memory.

Paper: Ren et al., ZeRO-Offload (USENIX ATC 2021, arXiv:2101.06840), sections 3 (which states go),
4.1 (one device) and 5.1 (the update on cores); torch's fully_shard with CPUOffloadPolicy for
parameters.

The idea: the optimizer's states are most of what a layer holds, and are read once a step. The host
keeps them, with the weights that it updates: gradients go down, updated weights come back.
Parameters gathered for each use may stay there too, copied up before each.

Symbols: n weights of a layer on a rank, b bytes of a master weight and of its gradient, s bytes of
the optimizer's states of a weight (AdamW in fp32: 8), u uses in a step (forward and backward of
every micro-batch), L a device's share of the link's bytes/s one way, H the host's bytes/s a device.

Cost once a step: n·b/L for the gradients, clipping and the optimizer's traffic over H (AdamW:
n·(2b + 3b + 2s)/H), and n·b/L for the weights; with ``all`` the last is u·n·b/L, one copy before
each gather. Device memory falls by n·s and a step count each, with ``all`` by n·b more; a gather
then needs n·b while it is filled, and beside the layer before. The host holds n·(s + 2b): states,
weights, and a buffer for gradients.

Copies run on lanes, where the stack overlaps sharding traffic: up beside the layer before, whose
gather waits for it; down beside the backward, once a layer's gradients are complete. Those that
other ranks still sum (tensor-parallel ones, copies of a table) go down with the norm. Then the host
scales each layer's gradients, as the device would, and updates it; its weights go up while it
updates the next. So a step shows the host's work, the first copy of a pass, and what slows beside
copies.

In DeepSpeed's layout (``partitioned``) compute parameters of c bytes lie beside master weights:
reduced gradients leave the device after every micro-batch (from the second on, the earlier sum
comes back and goes again), and parameters of c bytes come back, cast on the host. The host holds
n·(s + b) of the optimizer, n·4 of fp32 gradients, with ``all`` n·c of parameters: 16 and 18 bytes a
weight, as in DeepSpeed's estimate_zero3_model_states_mem_needs (without its factor 1.5 of buffers),
and the device no gradients (runtime/zero/stage3.py: grad_partitions_flat_buffer).

Takeaway: it buys memory for a constant time per step, so it pays with many micro-batches, or
against more devices or recomputation.

Worked number: a Llama-2-7B block (202 M weights) on one A100 of 8, fp32 masters: the device holds
1.6 GB less, the host 3.2 GB; copies 2 · 0.81 GB at 13.4 GB/s, half of a link that two share, are
121 ms, clipping and update 7.3 GB at 25.6 GB/s 284 ms.

Limits: blocks, not embeddings and heads. But for ``partitioned``, gradients stay on the device
until the norm is known, for plain clipping; DeepSpeed's 16-bit buffer of reduced gradients beside
the fp32 ones is not counted, and its copies of gradients after every micro-batch are in line.
ZeRO-Offload's update delayed by a step would be lossy, and another technique. Devices on a link
count as copying at the same time, though those of two stages may not. Adafactor and Muon mix
elements, so they are refused. Frozen weights stay. Rates of the host are assumed (``host_rates``).
"""

from __future__ import annotations

from dataclasses import replace

from ...spec.errors import InputError
from ...spec.model.layer_parameters import layer_parameters
from ...spec.plan.relative_position_bias import TABLE
from ...spec.report.work_items import HOST_PREFIX, TO_DEVICE, TO_HOST, Kernel, streamed
from ...spec.techniques.cpu_offload import NAME, offloads_parameters
from ...spec.techniques.cpu_offload import TECHNIQUE as VALUE
from ...spec.workload.number_formats import DTYPE_BYTES, Dtype
from ..sharding.fsdp_unit import FsdpUnit
from ..sharding.optimizers import UpdateShare, elementwise_update
from ..sharding.param_groups import UnitShape, param_groups
from ..symbolic.lane_work import Lane
from ..symbolic.tier_bytes import StateBytes
from ..technique import (
    AddedLaneWork,
    TechniquePrice,
    with_addition,
    with_fetched_parameters,
    with_offloaded_gradients,
)

OPTIMIZERS = ("adamw", "adam", "sgd", "lion", "adamw8bit")
"""Those that work element by element, so that the host needs no products and no sums."""


def unit(shape: UnitShape, states: FsdpUnit) -> FsdpUnit:
    """States of a layer, the optimizer's and perhaps parameters on the host.

    Raises:
        InputError: an optimizer that does not work element by element.
    """
    if shape.optimizer not in OPTIMIZERS:
        allowed = f"optimizers that work element by element: {', '.join(OPTIMIZERS)}"
        raise InputError(f"techniques.{NAME}", f"optimizer {shape.optimizer}", allowed, "adamw")
    elements = sum(part.shard for part in param_groups(shape) if part.trained)
    if not elements:  # all of it is frozen
        return states
    return _offloaded(shape, states, elements)


def _offloaded(shape: UnitShape, states: FsdpUnit, elements: int) -> FsdpUnit:
    """The unit with states of ``elements`` trained weights on the host."""
    beside = _masters_beside(shape, states)
    stored = shape.dtype.param if beside else shape.dtype.master
    up = _copy(TO_DEVICE, elements, stored)
    casts = _casts(states)
    host_work = _host_work(shape, states, elements, casts)
    others = tuple(item for item in states.post_update if item not in casts)
    without = replace(
        states,
        optimizer_bytes=0,
        post_update=others,
        update=UpdateShare(host_elements=elements),
    )
    early: tuple[AddedLaneWork, ...] = ()
    late: tuple[Kernel, ...] = ()
    if beside:
        down = _copy(TO_HOST, elements, stored)
        without = with_offloaded_gradients(without, NAME, down, up)
    else:
        early, late = _copies_down(shape, states, elements)
    if offloads_parameters(shape.strategy):
        without = with_fetched_parameters(without, NAME, up, elements * DTYPE_BYTES[stored])
        back: tuple[Kernel, ...] = ()
    else:
        back = (up,)
    update: tuple[tuple[Lane, tuple[Kernel, ...]], ...] = (
        ("to_host", late),
        ("host", host_work),
        ("to_device", back),
    )
    return with_addition(
        without,
        NAME,
        resident_tier_bytes=_on_host(shape, states, elements),
        beside_gradient=early,
        beside_update=tuple(
            AddedLaneWork(lane=lane, items=items, begins="with") for lane, items in update if items
        ),
    )


def _copies_down(
    shape: UnitShape, states: FsdpUnit, elements: int
) -> tuple[tuple[AddedLaneWork, ...], tuple[Kernel, ...]]:
    """Copies of gradients: beside the backward, and with the update.

    Those that other ranks still sum are complete only with the norm.
    """
    dtype, summed = shape.dtype.master, _summed_elements(shape)
    whole = [_copy(TO_HOST, n, dtype) for n in (elements - summed,) if n]
    late = [_copy(TO_HOST, n, dtype) for n in (summed,) if n]
    if not states.overlaps.dp_gradient:
        return (), (*whole, *late)
    early = [AddedLaneWork(lane="to_host", items=(copy,), begins="reduced") for copy in whole]
    return tuple(early), tuple(late)


def _summed_elements(shape: UnitShape) -> int:
    """Elements whose gradients are summed after all passes.

    Over tensor-parallel ranks, or, of a table of relative positions, over its copies.
    """
    summed = sum(sum(part.partials) for part in param_groups(shape) if part.trained)
    for number, layer in enumerate(shape.layers):
        if shape.training(number).weights:
            for spec in layer_parameters(layer, shape.seq_len):
                if spec.name == TABLE:
                    rows, heads = spec.local_shape(shape.strategy.weight_split)
                    summed += -(-rows // shape.strategy.shard.optimizer) * heads
    return summed


def _host_work(
    shape: UnitShape, states: FsdpUnit, elements: int, casts: list[Kernel]
) -> tuple[Kernel, ...]:
    """The host's part of an update: scaled gradients, the optimizer, casts of weights."""
    name = shape.dtype.master
    factors = int(shape.clips) + int(shape.dtype.param == "fp16")
    scale = streamed("foreach_mul", elements, 2 * elements * DTYPE_BYTES[name], name)
    update = elementwise_update(states.update, shape.optimizer, shape.dtype)
    work = (*[scale] * factors, *update, *casts)
    return tuple(kernel._replace(op=HOST_PREFIX + kernel.op) for kernel in work)


def _copy(op: str, elements: int, dtype: Dtype) -> Kernel:
    """A copy over the host link, read on one side and written on the other."""
    return streamed(op, elements, 2 * elements * DTYPE_BYTES[dtype], dtype)


def _masters_beside(shape: UnitShape, states: FsdpUnit) -> bool:
    """True if master weights lie beside the compute parameters, among the optimizer's states."""
    return shape.stack.state_layout == "partitioned" and states.wrapped


def _casts(states: FsdpUnit) -> list[Kernel]:
    """Casts of updated master weights into the compute copy."""
    kernels = (item for item in states.post_update if isinstance(item, Kernel))
    return [kernel for kernel in kernels if kernel.op == "cast"]


def _on_host(shape: UnitShape, states: FsdpUnit, elements: int) -> tuple[StateBytes, ...]:
    """States that the host holds.

    Where no masters lie beside the parameters, it holds what it updates, with a like buffer for
    gradients.
    """
    dtype = shape.dtype
    parameters, gradients = DTYPE_BYTES[dtype.master], DTYPE_BYTES[dtype.master]
    if _masters_beside(shape, states):
        gradients = DTYPE_BYTES[dtype.gradient]
        parameters = DTYPE_BYTES[dtype.param] if offloads_parameters(shape.strategy) else 0
    return (
        StateBytes("host", elements * parameters, "parameters"),
        StateBytes("host", elements * gradients, "gradients"),
        StateBytes("host", states.optimizer_bytes, "optimizer"),
    )


TECHNIQUE = TechniquePrice(value=VALUE, unit=unit)
