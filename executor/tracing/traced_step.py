"""One traced step of every rank, read into a measured Timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from ...spec.codec import write_atomically
from ...spec.report.timeline import Timeline
from ...spec.report.trace_marks import STEP
from .. import torch_compat
from ..engine.engine import Engine
from ..launch.clock_sync import clock_lead_ns
from ..launch.consistency import gather_json
from ..launch.progress import PROGRESS
from .device_segments import DeviceOperation, device_segments
from .segments import Operation, segments, send_times
from .step_memory import StepMemory
from .timeline import RankTrace, critical_rank, measured_breakdown, measured_timeline


def traced_timeline(engine: Engine, memory: StepMemory | None = None) -> Timeline:
    """Trace one more step; the Timeline of all ranks, on every rank.

    ``memory`` of another step is mapped to this one's time.
    """
    device = engine.options.device
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, acc_events=True) as profiler:
        dist.barrier()
        with PROGRESS.timed() as marks_ns:
            engine.step()
    trace = rank_trace(_events(profiler))
    if memory is not None:
        trace = replace(trace, allocated=tuple(memory.curve_on(marks_ns)))
    trace = trace.shifted(-clock_lead_ns(device))
    traces = gather_json(trace.to_document(), device)
    return measured_timeline([RankTrace.from_document(trace) for trace in traces])


def _events(profiler: profile) -> Sequence[Any]:
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is None:
        raise RuntimeError("the profiler kept no events")
    events: Sequence[Any] = results.events()
    return events


def rank_trace(events: Sequence[Any]) -> RankTrace:
    """A rank's segments, of its step's thread or of its device.

    A device's backward passes run on a thread of their own while the step's thread waits, so there
    the operations of all launching threads form one sequence.
    """
    host = [event for event in events if torch_compat.is_host_operation(event)]
    device = [event for event in events if torch_compat.is_on_device(event)]
    threads = {next(event.start_thread_id() for event in host if event.name() == STEP)}
    launching = {event.linked_correlation_id() for event in device}
    threads |= {e.start_thread_id() for e in host if e.correlation_id() in launching}
    thread_events = [event for event in host if event.start_thread_id() in threads]
    operations = [_operation(event) for event in thread_events]
    step_segments = segments(operations)
    if not device:
        return RankTrace(tuple(step_segments), send_times(operations))
    launched = {e.correlation_id(): o for e, o in zip(thread_events, operations, strict=True)}
    work = [
        DeviceOperation(
            *_operation(event),
            launched.get(event.linked_correlation_id()),
            torch_compat.device_stream(event),
        )
        for event in device
    ]
    step_segments, sent_ns = device_segments(step_segments, work)
    return RankTrace(tuple(step_segments), sent_ns)


def _operation(event: Any) -> Operation:
    return Operation(event.name(), event.start_ns(), event.end_ns())


def trace_step(
    engine: Engine, where: Path | None, memory: StepMemory | None = None
) -> dict[str, Any]:
    """Trace one more step and attribute its time, rank by rank.

    Rank 0 writes the Timeline to ``where``, if any, as Perfetto JSON, with the ``memory`` of
    another step.
    """
    timeline = traced_timeline(engine, memory)
    if where is not None and engine.process_groups.rank == 0:
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
