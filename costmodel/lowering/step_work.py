"""Work of one optimizer step on a stage's rank, listed flat.

For comparison with a recorded run: every kernel and collective that a rank of the stage issues
between two optimizer steps, unordered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.model.experts import experts_of
from ...spec.model.model_spec import ModelSpec
from ...spec.model.towers import tower_outputs_after
from ...spec.parallel.batch_partition import same_batch_partition
from ...spec.plan.plan import Plan
from ...spec.plan.stage_messages import boundary_blocks, boundary_messages
from ...spec.report.work_items import Collective, streamed
from ...spec.schedules.stage_order import chunk_location, chunk_position
from ...spec.workload.number_formats import DTYPE_BYTES
from ...spec.workload.workload import DtypeRecord
from ..program_technique import StepAdditions
from ..sharding.fsdp_unit import FsdpUnit
from ..sharding.optimizers import merged_share, update_work
from ..sharding.traffic import partial_sum_work
from ..symbolic.added_update import AddedUpdate
from ..symbolic.lane_work import LaneWorks
from ..symbolic.layer_shape import activation_shape
from ..symbolic.tape import WorkItem
from ..technique import TechniquePrices
from ..techniques import TECHNIQUES
from .chunk import StageChunk, StageLayer
from .plan_lowering import Lowering
from .stage_passes import PassKind
from .tied_bias import tied_bias_reductions
from .tied_embeddings import table_group, table_stages
from .waiting_sums import placed_sums, waits

NORM_AND_LOSS_BYTES = 16
TALLY_BYTES = 8


def step_work(
    plan: Plan, stack: StackSpec, stage: int, techniques: TechniquePrices = TECHNIQUES
) -> list[WorkItem]:
    """Every kernel and collective of one step on a rank of ``stage``.

    Of a step in which all is done that techniques do once in several.
    """
    lowering = Lowering(plan.model, plan.workload, stack, techniques, plan.program.techniques)
    chunks = lowering.stage(plan, stage)
    micro_batches = plan.program.schedule.microbatches
    work: list[WorkItem] = []
    for index, chunk in enumerate(chunks):
        for number in range(len(chunk.layers)):
            omitted_sums = _last_reads(lowering, chunk.layers[number])
            work += _layer_work(chunk, number, micro_batches, omitted_sums)
        if waits(chunk):
            work += [i for sums in placed_sums(chunk) for i in (*sums.beside, *sums.after)]
        work += _messages(plan, stage, index, chunk, micro_batches)
    additions = lowering.step_additions(chunks, plan.program.stages[stage].device_count)
    end = step_end_work(plan, lowering.stack, stage, chunks, additions)
    added = [item for update in end.added for item in update.items]
    added += [item for works in end.lanes for item in _lane_items(works)]
    added += [item for _, step in additions for work in step.beside for item in work.items]
    return [
        *work,
        *end.pending_reductions,
        *end.tied_reduction,
        end.norm,
        *added,
        *end.update,
        *end.gathers,
    ]


def _last_reads(lowering: Lowering, entry: StageLayer) -> tuple[WorkItem, ...]:
    """Gradient sums omitted by the last reader of a tower's output.

    Equal layers are lowered once, each adding to later readers' gradients; the last has none to add
    to. Prices keep its sum, some bytes of one layer.
    """
    index, shape = entry.index, entry.lowered.shape
    following = tower_outputs_after(lowering.contexts, index)
    sums = []
    for source in lowering.contexts[index].read:
        if source not in following:
            sizes = activation_shape(shape, shape.strategy, source.tokens, source.hidden)
            elements = math.prod(sizes)
            traffic_bytes = 3 * elements * DTYPE_BYTES[lowering.workload.dtype.param]
            sums.append(streamed("add", elements, traffic_bytes, shape.dtype))
    return tuple(sums)


def _layer_work(
    chunk: StageChunk, number: int, micro_batches: int, omitted_sums: tuple[WorkItem, ...]
) -> Iterator[WorkItem]:
    forward, unit = chunk.layers[number].lowered.forward, chunk.layers[number].unit
    for micro_batch in range(micro_batches):
        backward = chunk.backward(number, first=micro_batch == 0)
        last = micro_batch + 1 == micro_batches
        work = [e.work for e in (*forward.entries, *backward.entries)]
        for direction in (True, False):
            kind = PassKind(direction, 0, micro_batch == 0, last)
            work += _lane_items(chunk.lanes(number, kind))
        for item in omitted_sums:
            if item in work:  # frozen layers have no backward
                work.remove(item)
        yield from work
        if unit is not None:
            yield from _unit_work(unit, micro_batch, last)
    if unit is not None:
        yield from (entry.work for entry in unit.added.entries)


def _lane_items(works: LaneWorks) -> list[WorkItem]:
    return [item for work in works for item in work.items]


def _unit_work(unit: FsdpUnit, micro_batch: int, last: bool) -> Iterator[WorkItem]:
    if not unit.wrapped:
        return
    if micro_batch == 0:
        yield from unit.gather.outer
    if unit.gathers_each_use:
        yield from (*unit.gather.forward, *unit.gather.backward)
    elif micro_batch == 0:
        yield from unit.gather.forward
    if last or unit.reduces_each_micro_batch:
        accumulated = micro_batch > 0 and not unit.reduces_each_micro_batch
        yield from (
            (*unit.reduce.accumulate_upcast, *unit.reduce.accumulated)
            if accumulated
            else unit.reduce.fresh
        )
        if micro_batch and unit.reduces_each_micro_batch:
            yield from unit.reduce.accumulate_shard
    else:
        yield from unit.reduce.accumulate_upcast if micro_batch else unit.reduce.upcast
    if last:
        yield from unit.reduce.outer


def _messages(
    plan: Plan, stage: int, number: int, chunk: StageChunk, micro_batches: int
) -> Iterator[WorkItem]:
    """Activations and gradients crossing ranks at the chunk's ends.

    Outputs of other towers are separate messages; prices take all as one.
    """
    schedule, stages = plan.program.schedule.kind, len(plan.program.stages)
    if stages == 1:
        return
    position = chunk_position(schedule, stage, number, stages)
    first = _first_ranks(plan)
    dtype = plan.workload.dtype.param
    received = (chunk.input_bytes, *(source.receives_bytes for source in chunk.sources))
    sent = (chunk.output_bytes, *(source.sends_bytes for source in chunk.sources))
    crossings = [(size, position - 1, ("recv", "send")) for size in received]
    crossings += [(size, position, ("send", "recv")) for size in sent]
    for size, boundary, kinds in crossings:
        peer_position = boundary if kinds[0] == "recv" else boundary + 1
        neighbor = chunk_location(schedule, peer_position, stages)[0] if size else stage
        if neighbor == stage:
            continue
        if same_batch_partition(plan.program.stages[stage], plan.program.stages[neighbor]):
            distance = abs(first[neighbor] - first[stage])
            for kind in kinds:
                message = Collective(kind, 2, distance, size, dtype)  # type: ignore[arg-type]
                yield from [message] * micro_batches
            continue
        pair = (stage, neighbor)
        for message in _crossing(plan, boundary, pair, size, kinds[0] == "send"):
            yield from [message] * micro_batches


def _first_ranks(plan: Plan) -> list[int]:
    counts = (stage.device_count for stage in plan.program.stages)
    return list(accumulate(counts, initial=0))


def _crossing(
    plan: Plan, boundary: int, pair: tuple[int, int], block_bytes: int, leaves: bool
) -> Iterator[Collective]:
    """Messages of the first rank of ``pair[0]`` across differing batch partitions.

    ``boundary``: position of the chunk before it; ``pair``: the stage and the one beyond;
    ``block_bytes``: bytes of the rank's block; ``leaves``: activations leave the stage here, else
    come in.
    """
    first, dtype = _first_ranks(plan), plan.workload.dtype.param
    blocks = boundary_blocks(plan, boundary)
    rows = blocks[0 if leaves else 1][0].rows
    for forward in (True, False):
        sends = forward == leaves
        for item in boundary_messages(plan, boundary, forward):
            rank, peer = (item.source, item.target) if sends else (item.target, item.source)
            if rank == 0:
                distance = abs(first[pair[1]] + peer - first[pair[0]])
                size = block_bytes * item.block.rows // rows
                yield Collective("send" if sends else "recv", 2, distance, size, dtype)


class StepEndWork(NamedTuple):
    """Work after the last backward pass on a rank, in this order.

    ``pending_reductions``: gradients summed over tensor-parallel ranks. ``tied_reduction``: that of
    a weight shared by two stages. ``norm``: the global norm with the loss. ``update``: norm,
    clipping, optimizer. ``gathers``: updated parameters that are whole or quantized between steps.
    ``added``: techniques' work at the update; ``lanes``: beside it, by unit.
    """

    pending_reductions: tuple[WorkItem, ...]
    tied_reduction: tuple[WorkItem, ...]
    norm: Collective
    update: tuple[WorkItem, ...]
    gathers: tuple[WorkItem, ...]
    added: tuple[AddedUpdate, ...] = ()
    lanes: tuple[LaneWorks, ...] = ()


def step_end_work(
    plan: Plan,
    stack: StackSpec,
    stage: int,
    chunks: tuple[StageChunk, ...],
    additions: StepAdditions = (),
) -> StepEndWork:
    """Pending gradient sums, the global norm, the update.

    ``additions``: of the program's values.
    """
    entries = [entry for chunk in chunks for entry in chunk.layers]
    units = [entry.unit for entry in entries if entry.unit is not None]
    dtype = plan.workload.dtype
    tied_reduction, tied_copy = _tied_reduction(plan, stage, entries)
    table_sums, table_copy = tied_bias_reductions(plan, stage)
    return StepEndWork(
        pending_reductions=tuple(_pending_reductions(entries, dtype)),
        tied_reduction=(*tied_reduction, *table_sums),
        norm=norm_sum(sum(s.device_count for s in plan.program.stages), router_tallies(plan.model)),
        update=update_work(
            merged_share(unit.update for unit in units),
            tied_copy + table_copy,
            plan.workload.optimizer,
            dtype,
            plan.workload.gradient_clip_norm is not None,
        ),
        gathers=tuple(item for unit in units for item in unit.post_update),
        added=tuple(added for unit in units for added in unit.added_update)
        + tuple(AddedUpdate(n, step.update, step.every) for n, step in additions if step.update),
        lanes=tuple(unit.update_lanes for unit in units if unit.update_lanes),
    )


def norm_sum(devices: int, tallies: int = 0) -> Collective:
    """Sum of the global norm, the loss and routers' tallies over a plan's devices."""
    size = NORM_AND_LOSS_BYTES + tallies * TALLY_BYTES
    return Collective("all_reduce", devices, 1, size, "fp64")


def router_tallies(model: ModelSpec) -> int:
    """Numbers that balanced routers sum over ranks each step: two losses, a load an expert."""
    found = [moe for layer in model.layers() if (moe := experts_of(layer)) is not None]
    loads = [moe.experts for moe in found if moe.balance is not None]
    return 2 + sum(loads) if loads else 0


def _pending_reductions(entries: list[StageLayer], dtype: DtypeRecord) -> Iterator[WorkItem]:
    by_degree: dict[int, tuple[int, ...]] = {}
    for entry in entries:
        if entry.unit is not None and entry.unit.partial_shards:
            degree = entry.strategy.tp
            by_degree[degree] = (*by_degree.get(degree, ()), *entry.unit.partial_shards)
    for degree in sorted(by_degree):
        yield from partial_sum_work(by_degree[degree], degree, dtype)


def _tied_reduction(
    plan: Plan, stage: int, entries: list[StageLayer]
) -> tuple[tuple[WorkItem, ...], int]:
    """Gradient sum of a shared weight, and elements excluded from the norm.

    Copies on one stage, as at the ends of a V, are added there first, and each gets the sum of all
    stages. A frozen table has no gradient.
    """
    stages = table_stages(plan)
    if stage not in stages or len(plan.program.stages) == 1:
        return (), 0
    tied = [e.unit for e in entries if e.unit is not None and e.unit.tied_bytes]
    if not tied:
        return (), 0
    dtype, elements = plan.workload.dtype.master, tied[0].tied_elements
    traffic_bytes = 3 * elements * DTYPE_BYTES[dtype]
    work: list[WorkItem] = [streamed("add", elements, traffic_bytes, dtype)] * (len(tied) - 1)
    if len(stages) > 1:
        group = table_group(plan, stages)
        work.append(Collective("all_reduce", *group, tied[0].tied_bytes, dtype))
    counted = 1 if stage == stages[0] else 0
    work += [streamed("copy", elements, 2 * elements * DTYPE_BYTES[dtype], dtype)] * (len(tied) - 1)
    return tuple(work), elements * (len(tied) - counted)
