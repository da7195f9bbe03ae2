"""One traced step of every rank, read into a measured Timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from ..spec.codec import write_atomically
from ..spec.marks import STEP
from ..spec.timeline import Timeline
from .device_segments import DeviceOperation, device_segments
from .engine import Engine
from .exchange import gather_json
from .measured import RankTrace, critical_rank, measured_breakdown, measured_timeline
from .segments import Operation, segments, send_times


def traced_timeline(engine: Engine) -> Timeline:
    """Run one more step under the profiler; the Timeline of all ranks, on every rank."""
    device = engine.options.device
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        dist.barrier()
        engine.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    traces = gather_json(_rank_trace(profiler, device).to_document(), device)
    return measured_timeline([RankTrace.from_document(trace) for trace in traces])


def _rank_trace(profiler: profile, device: torch.device) -> RankTrace:
    """This rank's segments: of the thread that ran the step, or of the device it drove."""
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is None:
        raise RuntimeError("the profiler kept no events")
    events = results.events()
    thread = next(e.start_thread_id() for e in events if e.name() == STEP)
    own = [e for e in events if e.start_thread_id() == thread and not e.is_async() and _on_host(e)]
    operations = [Operation(e.name(), e.start_ns(), e.end_ns()) for e in own]
    found = segments(operations)
    if device.type == "cuda":
        launched = {e.correlation_id(): Operation(e.name(), e.start_ns(), e.end_ns()) for e in own}
        kernels = [
            DeviceOperation(
                e.name(),
                e.start_ns(),
                e.end_ns(),
                launched.get(e.linked_correlation_id()),
            )
            for e in events
            if not _on_host(e)
        ]
        found, sent_ns = device_segments(found, kernels)
        return RankTrace(tuple(found), sent_ns)
    return RankTrace(tuple(found), send_times(operations))


def _on_host(event: Any) -> bool:
    return bool(event.device_type() == DeviceType.CPU)


def trace_step(engine: Engine, where: Path | None) -> dict[str, Any]:
    """Trace one step; where the time went, rank by rank.

    Args:
        engine: a trained engine; this is one more step of it.
        where: rank 0 writes the Timeline here, as Perfetto JSON; None for nowhere.
    """
    timeline = traced_timeline(engine)
    if where is not None and engine.book.rank == 0:
        write_atomically(where, timeline.to_perfetto())
    ranks = dist.get_world_size()
    by_rank = [measured_breakdown(timeline, rank) for rank in range(ranks)]
    critical = critical_rank(timeline)
    return {
        "step_time_s": timeline.step_time_s,
        "critical_rank": critical,
        "breakdown_s": by_rank[critical],
        "breakdown_by_rank_s": by_rank,
    }
