"""BuildOptions: decisions of a run beside the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ...kernels.dispatch import Policy
from ..technique import RunTechniques
from .weight_source import WeightSource

Compiler = Literal["inductor", "aot_eager"]
"""inductor writes fused kernels. aot_eager traces and differentiates in the same way, but runs each
operation of the library: for checks, which need no compiler of the device."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Seed, device, kernels and techniques of a run.

    ``techniques``: those the plan may hold. ``compiler``: of compiled layers.
    ``collective_timeout_s``: wait in a collective. ``weight_source``: initial weights; None for
    random ones by seed.
    """

    seed: int
    device: torch.device
    flash: bool
    prefetch: bool
    techniques: RunTechniques
    kernels: Policy = "auto"
    compiler: Compiler = "inductor"
    collective_timeout_s: float = 60.0
    weight_source: WeightSource | None = None
