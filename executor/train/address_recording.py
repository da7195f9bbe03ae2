"""The job that records the allocation requests of a plan's steps on its ranks."""

from __future__ import annotations

from typing import Any

from ...kernels.addresses.arena import CoreArena
from ...spec.codec import from_document
from ...spec.errors import NotBuiltError
from ...spec.plan.plan import plan_of
from ...spec.report.allocation_trace import AllocationTrace
from ..engine.engine import Engine
from ..launch.preflight import preflight
from ..launch.rank_context import RankContext
from ..technique import RunTechniques
from ..techniques import SHIPPED
from ..tracing.allocations import RecordingHooks, least_trace, recorded_trace
from .address_rehearsal import with_address_hooks
from .job import TrainSettings, make_batches, make_engine, require_executable

RECORDED_STEPS = 4
"""Another thread releases a buffer late in some of them, hardly in all."""


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
    preflight(plan, context.device, techniques.values)
    if context.device.type != "cpu":
        raise NotBuiltError(f"planned addresses on {context.device.type} devices", "use cores")
    arena = CoreArena()
    planned, runs = with_address_hooks(plan, techniques)
    batch, own = make_batches(plan, settings), runs(RecordingHooks(arena))
    engine = make_engine(planned, context, settings, batch, own)
    try:
        engine.step()  # makes what lasts, as the first step of a run does
        traces = [_recorded(engine, arena) for _ in range(RECORDED_STEPS)]
        return least_trace(traces).to_document()
    finally:
        engine.close()
        arena.close()


def _recorded(engine: Engine, arena: CoreArena) -> AllocationTrace:
    arena.record()
    engine.step()
    return recorded_trace(arena.recorded())
