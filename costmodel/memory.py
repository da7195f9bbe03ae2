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

from ..spec.errors import InputError
from ..spec.formats import DTYPE_BYTES
from ..spec.layers import BlockLayer, Layer, MultiTokenLayer
from ..spec.mixers import rotary_channels
from ..spec.plan import Plan
from ..spec.report import MemoryRow
from ..spec.stack import StackSpec
from .library_memory import scaled, workspace_bytes
from .lowering import StageChunk
from .pass_memory import (
    COMMUNICATION,
    GRADIENTS,
    LEDGER_TERMS,
    OPTIMIZER,
    PARAMETERS,
    WORKSPACE,
    PassEffect,
    PassPlayer,
)
from .stage_passes import PassKind, StagePasses
from .unit import Unit

COUNTABLE_BYTES = 2**60


def stage_peak(
    plan: Plan,
    stack: StackSpec,
    passes: StagePasses,
    chunks: tuple[StageChunk, ...],
    prefetch: bool,
) -> dict[str, int]:
    """Allocated bytes by term at the fullest moment of a step on a rank of a stage.

    Args:
        plan: the plan.
        stack: the software that runs it.
        passes: the stage's passes in order.
        chunks: the stage's lowered chunks.
        prefetch: whether the next unit's gather is under way while a layer computes.

    Raises:
        InputError: states too large to count in 64 bits.
    """
    player = PassPlayer(stack, chunks, prefetch)
    rows, kinds = passes.rows, passes.kinds
    effects = [player.play(kind) for kind in kinds]
    _refuse_overflow(effects, _resident(plan, stack, chunks), len(rows))
    change = np.array([effect.change for effect in effects], dtype=np.int64)[rows]
    peak = np.array([effect.peak for effect in effects], dtype=np.int64)[rows]
    resident = np.array(_resident(plan, stack, chunks), dtype=np.int64)
    after = resident + np.cumsum(change, axis=0)
    fullest = np.vstack([resident, after[:-1]]) + peak
    if len(plan.program.stages) > 1:
        fullest[:, COMMUNICATION] += _message_bytes(chunks, kinds, rows)
    update = after[-1].copy()
    update[WORKSPACE] += _update_scratch(plan, chunks)
    moments = np.vstack([fullest, update])
    best = moments[int(np.argmax(moments.sum(axis=1)))]
    return dict(zip(LEDGER_TERMS, best.tolist(), strict=True))


def _refuse_overflow(effects: list[PassEffect], resident: list[int], passes: int) -> None:
    """The sums of all passes must stay within 64-bit integers."""
    largest = max(abs(size) for e in effects for size in (*e.peak, *e.change, *resident))
    if largest * (passes + 1) >= COUNTABLE_BYTES:
        allowed = "sizes whose bytes on one device count in 64 bits"
        raise InputError("model and workload", f"{largest} bytes in one pass", allowed)


def _message_bytes(
    chunks: tuple[StageChunk, ...], kinds: tuple[PassKind, ...], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Bytes of messages held during each pass: received one pass ahead, sent until one later."""
    ends = [(chunks[k.chunk].receives_bytes, chunks[k.chunk].sends_bytes) for k in kinds]
    crossing = [
        (0, 0) if k.part == "weight" else pair if k.forward else pair[::-1]
        for k, pair in zip(kinds, ends, strict=True)
    ]
    into_and_out = np.array(crossing, dtype=np.int64)
    received, sent = into_and_out[rows, 0], into_and_out[rows, 1]
    total: NDArray[np.int64] = np.append(received[1:], 0) + np.append(0, sent[:-1])
    return total


def _resident(plan: Plan, stack: StackSpec, chunks: tuple[StageChunk, ...]) -> list[int]:
    """Bytes that live between steps: stored parameters, optimizer state, angle tables."""
    found = [0] * len(LEDGER_TERMS)
    for unit in _units(chunks):
        found[PARAMETERS] += unit.parameter_bytes
        found[OPTIMIZER] += unit.optimizer_bytes
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


def _units(chunks: tuple[StageChunk, ...]) -> list[Unit]:
    return [e.unit for chunk in chunks for e in chunk.layers if e.unit is not None]


def _update_scratch(plan: Plan, chunks: tuple[StageChunk, ...]) -> int:
    """The joined buffer of gradients that are summed over tensor-parallel ranks."""
    elements = sum(sum(unit.partial_shards) for unit in _units(chunks))
    return elements * DTYPE_BYTES[plan.workload.dtype.master]


def memory_row(
    plan: Plan, stack: StackSpec, stage: int, allocated: dict[str, int], communicators: int
) -> MemoryRow:
    """Allocated bytes completed to what the allocator reserves, against the capacity.

    A calibration's factors multiply what is live at the moment that is fullest without them.
    """
    allocator = stack.allocator
    held = scaled(allocated, stack.memory)
    live = sum(held.values())
    by = {
        **held,
        "fragmentation": int(allocator.fragmentation * live),
        "context": allocator.context_bytes,
    }
    by["communication"] += allocator.communicator_bytes * communicators
    place = plan.program.stages[stage].devices[0]
    group = plan.cluster.group(place.device_group)
    by["workspace"] += workspace_bytes(stack, group.device)
    capacity = group.memory.hbm_bytes
    return MemoryRow(
        program=plan.program.name,
        stage=stage,
        device_group=place.device_group,
        allocated_bytes=live,
        reserved_bytes=sum(by.values()),
        capacity_bytes=capacity,
        by=by,
    )
