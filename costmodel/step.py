"""All the work of one optimizer step on one stage's representative rank, as a flat list.

This is the lowering that a recorded run is held against: every kernel and collective that a
rank of the stage issues between two optimizer steps, in no particular order. Prices and
schedules use the same lowered layers and units.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..spec.groups import RankGroup
from ..spec.kernels import Collective
from ..spec.model import HeadLayer
from ..spec.plan import Plan
from ..spec.stack import StackSpec
from ..spec.workload import DTYPE_BYTES
from .lowering import Lowering, StageChunk
from .sharding import Unit, partial_sum_work, update_work
from .tape import Item

NORM_AND_LOSS_BYTES = 16


def step_work(plan: Plan, stack: StackSpec, stage: int) -> list[Item]:
    """Every kernel and collective of one step on a rank of ``stage``."""
    chunks = Lowering(plan.model, plan.workload, stack).stage(plan, stage)
    micro_batches = plan.program.schedule.microbatches
    work: list[Item] = []
    for chunk in chunks:
        for number in range(len(chunk.layers)):
            work += _layer_work(chunk, number, micro_batches)
        work += _messages(plan, stage, chunk, micro_batches)
    work += end_of_step(plan, stack, stage, chunks)
    return work


def _layer_work(chunk: StageChunk, number: int, micro_batches: int) -> Iterator[Item]:
    forward, unit = chunk.layers[number].lowered.forward, chunk.layers[number].unit
    for micro_batch in range(micro_batches):
        backward = chunk.backward(number, first=micro_batch == 0)
        yield from (e.work for e in (*forward.entries, *backward.entries))
        if unit is not None:
            yield from _unit_work(unit, micro_batch, micro_batch == micro_batches - 1)


def _unit_work(unit: Unit, micro_batch: int, last: bool) -> Iterator[Item]:
    if not unit.wrapped:
        return
    uses = 2 if unit.gathers_each_use else int(micro_batch == 0)
    for _ in range(uses):
        yield from unit.gather
    if last or unit.reduces_each_micro_batch:
        waited = micro_batch > 0 and not unit.reduces_each_micro_batch
        yield from (*unit.accumulate_upcast, *unit.reduce_accumulated) if waited else unit.reduce
        if micro_batch and unit.reduces_each_micro_batch:
            yield from unit.accumulate_shard
    else:
        yield from unit.accumulate_upcast if micro_batch else unit.upcast


def _messages(plan: Plan, stage: int, chunk: StageChunk, micro_batches: int) -> Iterator[Item]:
    """Activations and gradients that cross between ranks at the chunk's ends."""
    stages = len(plan.program.stages)
    if stages == 1:
        return
    ranks = plan.program.stages[stage].device_count
    dtype = plan.workload.dtype.param
    for size, forward_kind, neighbour in (
        (chunk.receives_bytes, "recv", (stage - 1) % stages),
        (chunk.sends_bytes, "send", (stage + 1) % stages),
    ):
        if size:
            distance = abs(neighbour - stage) * ranks
            other = "send" if forward_kind == "recv" else "recv"
            for kind in (forward_kind, other):
                message = Collective(kind, 2, distance, size, dtype)  # type: ignore[arg-type]
                yield from [message] * micro_batches


def end_of_step(
    plan: Plan, stack: StackSpec, stage: int, chunks: tuple[StageChunk, ...]
) -> Iterator[Item]:
    """Sums that backward leaves open, the global norm, the update."""
    units = [(e, e.unit) for chunk in chunks for e in chunk.layers if e.unit is not None]
    dtype = plan.workload.dtype
    by_degree: dict[int, tuple[int, ...]] = {}
    for entry, unit in units:
        if unit.partial_shards:
            degree = entry.strategy.tp
            by_degree[degree] = (*by_degree.get(degree, ()), *unit.partial_shards)
    for degree in sorted(by_degree):
        yield from partial_sum_work(by_degree[degree], degree, dtype)
    tied_copy = 0
    stages = len(plan.program.stages)
    if plan.model.tie_embeddings and stages > 1:
        distance = (stages - 1) * plan.program.stages[0].device_count
        for entry, unit in units:
            if unit.tied_bytes:
                group = RankGroup(2, distance)
                yield Collective("all_reduce", *group, unit.tied_bytes, dtype.master)
                if isinstance(entry.layer, HeadLayer):
                    tied_copy = unit.tied_bytes // DTYPE_BYTES[dtype.master]
    world = sum(s.device_count for s in plan.program.stages)
    yield Collective("all_reduce", world, 1, NORM_AND_LOSS_BYTES, "fp64")
    matrices = sum(unit.matrix_elements for _, unit in units)
    vectors = sum(unit.vector_elements for _, unit in units)
    clips = plan.workload.gradient_clip_norm is not None
    yield from update_work(matrices, vectors, tied_copy, dtype, clips)
    if stack.state_layout == "contiguous":
        for _, unit in units:
            yield from unit.gather
