"""Compilation of blocks: only at a pin's request.

Its gain rests on host times not measured yet, and on cores it costs seconds of a compiler before
the first step.
"""

from __future__ import annotations

from ...datasets.catalogue.device import CPU
from ...spec.techniques.compile import NAME, Compile
from ..technique import TechniqueChoice

GRAPH_DEVICES = "CUDA devices: cores replay no graphs"
UNTRIED = "what it gains is unmeasured, so it is taken only where it is pinned"


def device_reason(value: Compile, device: str) -> str | None:
    """Devices required by a value, if this is none; else None."""
    return GRAPH_DEVICES if value.mode == "cuda_graph" and device == CPU else None


TECHNIQUE = TechniqueChoice(name=NAME, untried=UNTRIED, device_reason=device_reason)
