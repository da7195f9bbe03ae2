"""Device memory snapshots in one schema for GPUs and cores.

The schema is the CUDA allocator's (``torch.cuda.memory._snapshot``) as plain JSON: ``segments``
with the blocks alive at the end, ``device_traces`` with ordered events. On cores the live-bytes
recorder supplies it, one segment per storage, since nothing there caches freed memory.

Times are seconds since 1970, the profiler's clock, or indices where a trace has none. Bytes are as
requested: the CUDA allocator's counters round each up to 512.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import torch

    from .recorder import MemoryChange

MAX_ENTRIES = 1_000_000
"""Trace entries that are kept of a CUDA device; the oldest are overwritten."""
ONLY_STREAM = 0
US = 1e-6
CHANGES = {"alloc": 1, "free_requested": -1}
"""Actions that change allocated bytes, with their sign. What waits for another stream between
``free_requested`` and ``free_completed`` is no longer allocated, as in torch's statistics."""


class Snapshot(TypedDict):
    """Segments with their blocks, and one trace per device."""

    segments: list[dict[str, Any]]
    device_traces: list[list[dict[str, Any]]]


def cpu_snapshot(history: Sequence[MemoryChange]) -> Snapshot:
    """Snapshot of a core's live storages.

    Addresses are synthetic: each allocation has its own range. ``history``: from
    :class:`recorder.LiveBytes`.
    """
    trace: list[dict[str, Any]] = []
    alive: dict[int, dict[str, Any]] = {}
    sizes: dict[int, int] = {}
    address = 0
    for change in history:
        left = sizes.get(change.storage, 0) + change.change_bytes
        entry = {"stream": ONLY_STREAM, "time_us": change.time_ns // 1000, "frames": []}
        if (block := alive.pop(change.storage, None)) is not None:
            gone = {**entry, "addr": block["addr"], "size": block["size"]}
            for action in ("free_requested", "free_completed", "segment_free"):
                trace.append({**gone, "action": action})
        if left:
            frames = [{"filename": "", "line": 0, "name": change.cause}]
            block = {**entry, "addr": address, "size": left, "frames": frames}
            alive[change.storage] = block
            trace += [{**block, "action": action} for action in ("segment_alloc", "alloc")]
            address += left
        sizes[change.storage] = left
    return {"segments": [_segment(block) for block in alive.values()], "device_traces": [trace]}


def _segment(block: dict[str, Any]) -> dict[str, Any]:
    """Segment of one live storage."""
    address, size = block["addr"], block["size"]
    inside = {
        "address": address,
        "size": size,
        "requested_size": size,
        "state": "active_allocated",
        "frames": block["frames"],
    }
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "stream": ONLY_STREAM,
        "segment_type": "large",
        "segment_pool_id": [0, 0],
        "blocks": [inside],
    }


@contextmanager
def recording_cuda(device: torch.device) -> Iterator[None]:
    """Record every allocation of CUDA devices; take :func:`cuda_snapshot` inside."""
    import torch

    record = torch.cuda.memory._record_memory_history
    record(
        "all",
        context="alloc",
        stacks="python",
        max_entries=MAX_ENTRIES,
        device=device,
        clear_history=True,
    )
    try:
        yield
    finally:
        record(None)


def cuda_snapshot(device: torch.device) -> Snapshot:
    """The CUDA allocator's snapshot of an indexed device."""
    import torch

    return device_snapshot(torch.cuda.memory._snapshot(device), device.index)


def device_snapshot(allocator: dict[str, Any], index: int) -> Snapshot:
    """One device's part of the allocator's snapshot, as plain JSON."""
    segments = [_plain(row) for row in allocator["segments"] if row.get("device", index) == index]
    traces = allocator["device_traces"]
    return {
        "segments": segments,
        "device_traces": [_plain(traces[index]) if index < len(traces) else []],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def allocated_curve(snapshot: Snapshot) -> list[tuple[float, int]]:
    """Allocated bytes after every change, with its time.

    The trace may begin late (earlier allocations, overwritten events): the live bytes at its end
    imply those at its beginning, the first point.
    """
    trace = [entry for entry in snapshot["device_traces"][0] if entry["action"] in CHANGES]
    changes = [CHANGES[entry["action"]] * int(entry["size"]) for entry in trace]
    first = _bytes_at_end(snapshot) - sum(changes)
    levels = list(accumulate(changes, initial=first))
    times = [_time_s(entry, number) for number, entry in enumerate(trace)]
    return list(zip([*times[:1], *times] or [0.0], levels, strict=True))


def _time_s(entry: dict[str, Any], number: int) -> float:
    return float(entry["time_us"] * US if "time_us" in entry else number)


def _bytes_at_end(snapshot: Snapshot) -> int:
    blocks = (block for segment in snapshot["segments"] for block in segment["blocks"])
    active = (block for block in blocks if block["state"] == "active_allocated")
    return sum(int(block.get("requested_size", block["size"])) for block in active)


def peak_allocated_bytes(snapshot: Snapshot) -> int:
    """Peak allocated bytes within the trace."""
    return max(level for _, level in allocated_curve(snapshot))


def reserved_bytes(snapshot: Snapshot) -> int:
    """Bytes of all segments at the end, freed blocks included."""
    return sum(int(segment["total_size"]) for segment in snapshot["segments"])
