"""Peak memory of a stage: live tensors under the real schedule, then what the allocator adds.

Every pass of the schedule is played on a ledger: gathers, the layers' own peaks and what they
leave behind, reductions, messages. Passes of one kind (chunk, direction, first or last
micro-batch) do the same, so each kind is played once and the schedule adds up their effects.

``allocated`` is the peak of live tensors; ``reserved`` adds fragmentation, library workspace,
communicator buffers and the device context of the stack.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.model.layers import BlockLayer, Layer, MultiTokenLayer
from ...spec.model.mixers import rotary_channels
from ...spec.plan.plan import Plan
from ...spec.plan.send_buffers import same_stage_input, send_buffer_release
from ...spec.report.report import MemoryRow
from ...spec.workload.number_formats import DTYPE_BYTES
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind, StagePasses
from ..sharding.fsdp_unit import FsdpUnit
from .library_workspace import calibrated_bytes, workspace_bytes
from .pass_memory import (
    COMMUNICATION,
    GRADIENTS,
    LEDGER_TERMS,
    OPTIMIZER,
    PARAMETERS,
    WORKSPACE,
    PassMemory,
)
from .pass_memory_cache import PassMemoryCache

COUNTABLE_BYTES = 2**60


def stage_peak(
    plan: Plan,
    stack: StackSpec,
    stage: int,
    passes: StagePasses,
    chunks: tuple[StageChunk, ...],
    prefetch: bool,
    effects: PassMemoryCache,
) -> dict[str, int]:
    """Allocated bytes by term at the fullest moment of a step on a rank of a stage.

    Args:
        plan: the plan.
        stack: the software that runs it.
        stage: its number.
        passes: the stage's passes in order.
        chunks: the stage's lowered chunks.
        prefetch: whether the next unit's gather is under way while a layer computes.
        effects: of passes under this stack.

    Raises:
        InputError: states too large to count in 64 bits.
    """
    rows, kinds = passes.rows, passes.kinds
    found, held = effects.of_stage(chunks, kinds, prefetch), _resident(plan, stack, chunks)
    _refuse_overflow(found, held, len(rows))
    change = np.array([effect.change for effect in found], dtype=np.int64)
    peak = np.array([effect.peak for effect in found], dtype=np.int64)
    messages = np.zeros(len(rows), dtype=np.int64)
    if len(plan.program.stages) > 1:
        messages = _message_bytes(plan, stage, chunks, kinds, rows)
    # Which moment is fullest takes sums alone; only that moment is then told apart by term.
    after = np.cumsum(change.sum(axis=1)[rows])
    fullest = np.append(0, after[:-1]) + peak.sum(axis=1)[rows] + messages
    best = int(np.argmax(fullest))
    scratch = _update_scratch(plan, chunks)
    update = int(after[-1]) + scratch
    done = len(rows) if update > fullest[best] else best
    moment = np.array(held, dtype=np.int64)
    moment += np.bincount(rows[:done], minlength=len(kinds)) @ change
    if done == len(rows):
        moment[WORKSPACE] += scratch
    else:
        moment += peak[rows[best]]
        moment[COMMUNICATION] += messages[best]
    return dict(zip(LEDGER_TERMS, moment.tolist(), strict=True))


def _refuse_overflow(effects: list[PassMemory], resident: list[int], passes: int) -> None:
    """The sums of all passes must stay within 64-bit integers."""
    every = [resident, *(sizes for effect in effects for sizes in effect)]
    largest = max(max(map(abs, sizes)) for sizes in every)
    if largest * (passes + 1) >= COUNTABLE_BYTES:
        allowed = "sizes whose bytes on one device count in 64 bits"
        raise InputError("model and workload", f"{largest} bytes in one pass", allowed)


def _message_bytes(
    plan: Plan,
    stage: int,
    chunks: tuple[StageChunk, ...],
    kinds: tuple[PassKind, ...],
    rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Bytes of messages held during each pass: received one pass ahead, sent until one later.

    In the shape of a V some are sent until much later, and at its turn a stage has what it made
    until it takes it.
    """
    ends = [(chunks[k.chunk].receives_bytes, chunks[k.chunk].sends_bytes) for k in kinds]
    crossing = [
        (0, 0) if k.part == "weight" else pair if k.forward else pair[::-1]
        for k, pair in zip(kinds, ends, strict=True)
    ]
    into_and_out = np.array(crossing, dtype=np.int64)
    received, sent = into_and_out[rows, 0], into_and_out[rows, 1]
    until = send_buffer_release(plan.program, stage)
    if until is None:
        total: NDArray[np.int64] = np.append(received[1:], 0) + np.append(0, sent[:-1])
        return total
    remote = [not same_stage_input(plan.program, stage, k.chunk, k.forward) for k in kinds]
    received = received * np.array(remote)[rows]
    changes = np.zeros(len(rows) + 3, dtype=np.int64)
    np.add.at(changes, np.arange(1, len(rows) + 1), sent)
    np.add.at(changes, np.array(until), -sent)
    return np.append(received[1:], 0) + np.cumsum(changes)[: len(rows)]


def _resident(plan: Plan, stack: StackSpec, chunks: tuple[StageChunk, ...]) -> list[int]:
    """Bytes that live between steps: parameters, optimizer state, angle tables, techniques'."""
    found = [0] * len(LEDGER_TERMS)
    for unit in _units(chunks):
        found[PARAMETERS] += unit.parameter_bytes
        found[OPTIMIZER] += unit.optimizer_bytes
        found[WORKSPACE] += unit.added_bytes
        if stack.state_layout == "contiguous":
            found[GRADIENTS] += unit.accumulated_bytes
    tables = {
        (turning, entry.lowered.shape.seq_len // entry.strategy.input_split)
        for chunk in chunks
        for entry in chunk.layers
        if (turning := _rotary_channels(entry.layer))
    }
    itemsize = DTYPE_BYTES[plan.workload.dtype.param]
    found[WORKSPACE] += sum(dim * tokens * itemsize for dim, tokens in tables)
    return found


def _rotary_channels(layer: Layer) -> int:
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    return rotary_channels(block.attention) if isinstance(block, BlockLayer) else 0


def _units(chunks: tuple[StageChunk, ...]) -> list[FsdpUnit]:
    return [e.unit for chunk in chunks for e in chunk.layers if e.unit is not None]


def _update_scratch(plan: Plan, chunks: tuple[StageChunk, ...]) -> int:
    """The joined buffer of gradients that are summed over tensor-parallel ranks."""
    elements = sum(sum(unit.partial_shards) for unit in _units(chunks))
    return elements * DTYPE_BYTES[plan.workload.dtype.master]


def memory_row(
    plan: Plan,
    stack: StackSpec,
    place: tuple[int, str],
    allocated: dict[str, int],
    communicators: int,
) -> MemoryRow:
    """Allocated bytes completed to what the allocator reserves, against the capacity.

    A calibration's factors multiply what is live at the moment that is fullest without them.

    Args:
        plan: the plan.
        stack: the software that runs it.
        place: stage and device group.
        allocated: live bytes by term at the fullest moment.
        communicators: process groups that a rank is in.
    """
    allocator = stack.allocator
    held = calibrated_bytes(allocated, stack.memory)
    live = sum(held.values())
    by = {
        **held,
        "fragmentation": int(allocator.fragmentation * live),
        "context": allocator.context_bytes,
    }
    by["communication"] += allocator.communicator_bytes * communicators
    stage, name = place
    group = plan.cluster.group(name)
    by["workspace"] += workspace_bytes(stack, group.device)
    capacity = group.memory.hbm_bytes
    return MemoryRow(
        program=plan.program.name,
        stage=stage,
        device_group=name,
        allocated_bytes=live,
        reserved_bytes=sum(by.values()),
        capacity_bytes=capacity,
        by=by,
    )
