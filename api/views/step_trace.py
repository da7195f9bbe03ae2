"""The simulated step's timeline in Perfetto's format, for pages that draw it."""

from __future__ import annotations

import json
from typing import Any

from ...costmodel.simulation.timeline import simulated_timeline
from ...spec.errors import InputError
from ..planning.plan_and_simulate import Simulated

MAX_TRACE_SPANS = 60_000
"""A timeline with more would make a page too large to open."""


def step_trace(simulated: Simulated) -> dict[str, Any] | str:
    """The step's timeline; in words, why a page has none."""
    try:
        timeline = simulated_timeline(simulated.simulation, simulated.simulator)
    except InputError as error:
        return f"no timeline: {error}"
    if len(timeline.spans) > MAX_TRACE_SPANS:
        return f"no timeline: {len(timeline.spans)} spans; plan simulate --trace writes them"
    trace: dict[str, Any] = json.loads(timeline.to_perfetto())
    return trace
