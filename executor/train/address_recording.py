"""The job that records the allocation requests of a plan's steps on its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...kernels.addresses.arena import CoreArena
from ...spec.codec import from_document
from ...spec.plan.plan import plan_of
from ...spec.report.allocation_trace import AllocationTrace, most_live_bytes
from ...spec.techniques.address_plan import NAME
from ..engine.engine import Engine
from ..launch.preflight import preflight
from ..launch.rank_context import RankContext
from ..technique import RunTechniques, TechniqueRun
from ..techniques import SHIPPED
from ..techniques.address_plan import require_cores
from ..tracing.allocations import RecordingHooks, recorded_trace
from .job import TrainSettings, make_batches, make_engine, require_executable

RECORDED_STEPS = 3
"""Steps of which the one with the fewest requests counts."""


def record(
    context: RankContext, payload: dict[str, Any], techniques: RunTechniques = SHIPPED
) -> dict[str, Any]:
    """This rank's allocation trace of a step after its first.

    ``payload``: as of the train job.
    """
    wanted = {name: value for name, value in payload.items() if name != "plan"}
    settings = from_document(TrainSettings, wanted, "settings")
    plan = plan_of(payload["plan"], "plan", techniques.values)
    require_executable(plan, techniques)
    require_cores(context.device)
    preflight(plan, context.device, techniques.values)
    arena = CoreArena()
    recording = TechniqueRun(name=NAME, start=lambda context: RecordingHooks(arena))
    others = tuple(run for run in techniques.runs if run.name != NAME)
    runs = replace(techniques, runs=(*others, recording))
    engine = make_engine(plan, context, settings, make_batches(plan, settings), runs)
    try:
        engine.step()  # makes what lasts, as the first step of a run does
        traces = [_recorded(engine, arena) for _ in range(RECORDED_STEPS)]
        return min(traces, key=_size).to_document()
    finally:
        engine.close()


def _recorded(engine: Engine, arena: CoreArena) -> AllocationTrace:
    arena.record()
    engine.step()
    return recorded_trace(arena.recorded())


def _size(trace: AllocationTrace) -> tuple[int, int]:
    """Requests and live bytes: a buffer that is released late adds to either."""
    return len(trace.requests), most_live_bytes(trace.requests)
