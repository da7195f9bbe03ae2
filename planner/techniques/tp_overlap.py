"""Overlap in chunks: only at a pin's request.

By how much collectives slow the products beside them is unmeasured, and so is what fused kernels
hide; a search that chose either unasked would promise both.
"""

from __future__ import annotations

from ...datasets.catalogue.device import CPU
from ...spec.techniques.tp_overlap import FUSED, NAME, TensorParallelOverlap
from ..technique import TechniqueChoice

FUSED_DEVICES = "CUDA devices with torch's symmetric memory: cores have no fused kernels"
UNTRIED = (
    "by how much collectives slow the products beside them is unmeasured, so it is taken only "
    "where it is pinned"
)


def device_reason(value: TensorParallelOverlap, device: str) -> str | None:
    """Devices required by a value, if this is none; else None."""
    return FUSED_DEVICES if value.kernels == FUSED and device == CPU else None


TECHNIQUE = TechniqueChoice(name=NAME, untried=UNTRIED, device_reason=device_reason)
