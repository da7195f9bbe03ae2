"""Peak memory of a stage: live tensors, then allocator overhead.

Passes of one kind (chunk, direction, first or last micro-batch) have equal effects, so each kind
runs once on a ledger, and the schedule adds up the effects and its messages. ``allocated`` is the
peak of live tensors; ``reserved`` adds fragmentation, library workspace, communicator buffers and
the device context of the stack.
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
    PassMemoryCache,
)

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
    """Allocated bytes by term at a stage's peak within a step.

    ``prefetch``: a unit's gather may run beside the layer before; ``effects``: of passes under this
    stack.

    Raises:
        InputError: states too large to count in 64 bits.
    """
    rows, kinds = passes.rows, passes.kinds
    pass_effects, resident = (
        effects.of_stage(chunks, kinds, prefetch),
        _resident(plan, stack, chunks),
    )
    _refuse_overflow(pass_effects, resident, len(rows))
    change = np.array([effect.change for effect in pass_effects], dtype=np.int64)
    peak = np.array([effect.peak for effect in pass_effects], dtype=np.int64)
    messages = np.zeros(len(rows), dtype=np.int64)
    if len(plan.program.stages) > 1:
        messages = _message_bytes(plan, stage, chunks, kinds, rows)
    # The peak is found from sums alone; only that moment is then broken down by term.
    after = np.cumsum(change.sum(axis=1)[rows])
    totals = np.append(0, after[:-1]) + peak.sum(axis=1)[rows] + messages
    peak_index = int(np.argmax(totals))
    scratch = _update_scratch(plan, chunks)
    update = int(after[-1]) + scratch
    passes_before = len(rows) if update > totals[peak_index] else peak_index
    moment = np.array(resident, dtype=np.int64)
    moment += np.bincount(rows[:passes_before], minlength=len(kinds)) @ change
    if passes_before == len(rows):
        moment[WORKSPACE] += scratch
    else:
        moment += peak[rows[peak_index]]
        moment[COMMUNICATION] += messages[peak_index]
    return dict(zip(LEDGER_TERMS, moment.tolist(), strict=True))


def _refuse_overflow(effects: list[PassMemory], resident: list[int], passes: int) -> None:
    vectors = [resident, *(sizes for effect in effects for sizes in effect)]
    largest = max(max(map(abs, sizes)) for sizes in vectors)
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
    """Bytes of messages held during each pass.

    Received one pass ahead, sent one longer; in a V schedule some stay much longer, and at its turn
    a stage keeps its output until it consumes it.
    """
    chunk_messages = [(chunks[k.chunk].receives_bytes, chunks[k.chunk].sends_bytes) for k in kinds]
    crossing = [
        (0, 0) if k.part == "weight" else pair if k.forward else pair[::-1]
        for k, pair in zip(kinds, chunk_messages, strict=True)
    ]
    into_and_out = np.array(crossing, dtype=np.int64)
    received, sent = into_and_out[rows, 0], into_and_out[rows, 1]
    releases = send_buffer_release(plan.program, stage)
    if releases is None:
        total: NDArray[np.int64] = np.append(received[1:], 0) + np.append(0, sent[:-1])
        return total
    remote = [not same_stage_input(plan.program, stage, k.chunk, k.forward) for k in kinds]
    received = received * np.array(remote)[rows]
    changes = np.zeros(len(rows) + 3, dtype=np.int64)
    np.add.at(changes, np.arange(1, len(rows) + 1), sent)
    np.add.at(changes, np.array(releases), -sent)
    return np.append(received[1:], 0) + np.cumsum(changes)[: len(rows)]


def _resident(plan: Plan, stack: StackSpec, chunks: tuple[StageChunk, ...]) -> list[int]:
    """Bytes held between steps: parameters, optimizer state, angle tables, techniques'."""
    resident = [0] * len(LEDGER_TERMS)
    for unit in _units(chunks):
        resident[PARAMETERS] += unit.parameter_bytes
        resident[OPTIMIZER] += unit.optimizer_bytes
        resident[WORKSPACE] += unit.added_bytes
        if stack.state_layout == "contiguous":
            resident[GRADIENTS] += unit.accumulated_bytes
    tables = {
        (channels, entry.lowered.shape.seq_len // entry.strategy.input_split)
        for chunk in chunks
        for entry in chunk.layers
        if (channels := _rotary_channels(entry.layer))
    }
    itemsize = DTYPE_BYTES[plan.workload.dtype.param]
    resident[WORKSPACE] += sum(dim * tokens * itemsize for dim, tokens in tables)
    return resident


def _rotary_channels(layer: Layer) -> int:
    block = layer.block if isinstance(layer, MultiTokenLayer) else layer
    return rotary_channels(block.attention) if isinstance(block, BlockLayer) else 0


def _units(chunks: tuple[StageChunk, ...]) -> list[FsdpUnit]:
    return [e.unit for chunk in chunks for e in chunk.layers if e.unit is not None]


def _update_scratch(plan: Plan, chunks: tuple[StageChunk, ...]) -> int:
    elements = sum(sum(unit.partial_shards) for unit in _units(chunks))
    return elements * DTYPE_BYTES[plan.workload.dtype.master]


def memory_row(
    plan: Plan,
    stack: StackSpec,
    rank_location: tuple[int, str],
    allocated: dict[str, int],
    communicators: int,
) -> MemoryRow:
    """A row from allocated bytes to reserved bytes, against the capacity.

    A calibration's factors multiply live bytes at the uncalibrated peak. ``allocated``: live bytes
    by term at the peak; ``communicators``: process groups of a rank.
    """
    allocator = stack.allocator
    live_by_term = calibrated_bytes(allocated, stack.memory)
    live = sum(live_by_term.values())
    by = {
        **live_by_term,
        "fragmentation": int(allocator.fragmentation * live),
        "context": allocator.context_bytes,
    }
    by["communication"] += allocator.communicator_bytes * communicators
    stage, name = rank_location
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
