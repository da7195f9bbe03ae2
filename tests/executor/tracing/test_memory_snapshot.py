"""Memory snapshots: a core's storages in the CUDA allocator's schema, and what is read back."""

from __future__ import annotations

import gc
import json
import time
from itertools import pairwise

import pytest
import torch
from torch.cuda import _memory_viz

from shardwright.executor.tracing.memory_snapshot import (
    allocated_curve,
    cpu_snapshot,
    cuda_snapshot,
    device_snapshot,
    peak_allocated_bytes,
    recording_cuda,
    reserved_bytes,
)
from shardwright.executor.tracing.recorder import LiveBytes, MemoryChange

MIB = 2**20


def followed() -> list[MemoryChange]:
    """A weight, activations that come and go, a storage that is emptied and filled again."""
    weight = torch.ones(MIB // 4)
    live = LiveBytes([weight])
    with live, live.following_resizes():
        held = weight * 2
        for _ in range(3):
            passing = held * 3 + weight
        buffer = torch.empty(2 * MIB // 4)
        buffer.untyped_storage().resize_(0)
        buffer.untyped_storage().resize_(3 * MIB)
        del passing, buffer
        gc.collect()
        history = list(live.history)  # the weight's end comes later
    assert held.numel()
    assert max(change.live_bytes for change in history) == live.peak_bytes
    return history


def test_a_core_s_snapshot_tells_what_was_followed() -> None:
    before_s = time.time()
    history = followed()
    snapshot = cpu_snapshot(history)
    curve = allocated_curve(snapshot)
    assert peak_allocated_bytes(snapshot) == 6 * MIB
    assert curve[0][1] == 0
    assert curve[-1][1] == history[-1].live_bytes == 2 * MIB
    assert [level for _, level in curve[1:]] == [change.live_bytes for change in history]
    times = [moment for moment, _ in curve]
    assert times == sorted(times)
    assert before_s - 1 < times[0] <= time.time()
    assert reserved_bytes(snapshot) == 2 * MIB, "nothing is kept on cores"
    assert json.loads(json.dumps(snapshot)) == snapshot


def test_the_library_s_viewers_read_it() -> None:
    snapshot = cpu_snapshot(followed())
    text = _memory_viz.trace(snapshot)
    assert text.count("cudaMalloc") == sum(
        entry["action"] == "alloc" for entry in snapshot["device_traces"][0]
    )
    assert "2.0MiB" in _memory_viz.segsum(snapshot)


def test_addresses_never_overlap() -> None:
    trace = cpu_snapshot(followed())["device_traces"][0]
    ranges = sorted((e["addr"], e["addr"] + e["size"]) for e in trace if e["action"] == "alloc")
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_a_grown_storage_is_freed_and_made_again() -> None:
    history = [MemoryChange(5, "a", 5, 1, 1000), MemoryChange(2, "resize", 7, 1, 3000)]
    snapshot = cpu_snapshot(history)
    levels = [(round(moment * 1e6), level) for moment, level in allocated_curve(snapshot)]
    assert levels == [(1, 0), (1, 5), (3, 0), (3, 7)]
    assert [segment["total_size"] for segment in snapshot["segments"]] == [7]


def entry(action: str, addr: int, size: int, **more: object) -> dict[str, object]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": [], **more}


def test_a_trace_that_begins_late_is_completed_from_its_end() -> None:
    """As from the CUDA allocator: 700 were alive before; another stream holds back the free."""
    block = {"address": 0, "size": 1024, "requested_size": 1000, "state": "active_allocated"}
    waiting = {"address": 2048, "size": 512, "requested_size": 300, "state": "active_awaiting_free"}
    segment = {"device": 1, "address": 0, "total_size": 2 * MIB, "segment_pool_id": (0, 1)}
    found = {
        "segments": [
            {**segment, "blocks": [block, waiting]},
            {**segment, "device": 0, "blocks": [block]},
        ],
        "device_traces": [
            [entry("alloc", 0, 1)],
            [
                entry("segment_alloc", 0, 2 * MIB),
                entry("alloc", 0, 1000),
                entry("alloc", 2048, 300),
                entry("free_requested", 4096, 700),
                entry("free_completed", 4096, 700),
                entry("free_requested", 2048, 300),
            ],
        ],
    }
    snapshot = device_snapshot(found, 1)
    assert allocated_curve(snapshot) == [(0, 700), (0, 1700), (1, 2000), (2, 1300), (3, 1000)]
    assert peak_allocated_bytes(snapshot) == 2000
    assert reserved_bytes(snapshot) == 2 * MIB
    assert json.loads(json.dumps(snapshot)) == snapshot


def test_no_history_is_no_allocation() -> None:
    snapshot = cpu_snapshot([])
    assert allocated_curve(snapshot) == [(0.0, 0)]
    assert peak_allocated_bytes(snapshot) == reserved_bytes(snapshot) == 0


@pytest.mark.gpu
def test_a_device_s_snapshot_tells_what_was_allocated() -> None:
    device = torch.device("cuda", 0)
    with recording_cuda(device):
        kept = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
        passing = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
        del passing
        snapshot = cuda_snapshot(device)
    levels = [level for _, level in allocated_curve(snapshot)]
    assert max(levels) - levels[0] == 12 * MIB
    assert levels[-1] - levels[0] == kept.numel()
