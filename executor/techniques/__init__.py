"""The runs of techniques, one file a technique.

Enters: layers, parameters, strategies and streams of a rank.
Leaves: one ``TechniqueRun`` each, in the tuple ``TECHNIQUES``.
Imports: ``executor.{technique, models, host, stage}``, ``kernels``, ``spec``.
"""

from __future__ import annotations

from ...spec.techniques import TECHNIQUES as VALUES
from ..technique import Runs, RunTechniques
from . import (
    activation_swap,
    address_plan,
    compile,
    cpu_offload,
    expert_pipelining,
    gradient_windows,
    quantized_communication,
    tp_overlap,
)

TECHNIQUES: Runs = (
    compile.TECHNIQUE,
    cpu_offload.TECHNIQUE,
    activation_swap.TECHNIQUE,
    quantized_communication.TECHNIQUE,
    address_plan.TECHNIQUE,
    tp_overlap.TECHNIQUE,
    expert_pipelining.TECHNIQUE,
    gradient_windows.TECHNIQUE,
)
"""One entry a module, in the order of ``spec.techniques``."""

SHIPPED = RunTechniques(values=VALUES, runs=TECHNIQUES)
"""The techniques of a run that names none."""
