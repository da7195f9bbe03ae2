"""The choices of techniques, one file a technique.

Enters: a layer, its other decisions, a workload and a cluster.
Leaves: one ``TechniqueChoice`` each, in the tuple ``TECHNIQUES``.
Imports: ``planner.technique``, ``costmodel.techniques``, ``datasets.catalogue``, ``spec``.
"""

from __future__ import annotations

from ...costmodel.techniques import TECHNIQUES as PRICES
from ...spec.techniques import TECHNIQUES as VALUES
from ..technique import Choices, KnownTechniques
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

TECHNIQUES: Choices = (
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

SHIPPED = KnownTechniques(values=VALUES, prices=PRICES, choices=TECHNIQUES)
"""The techniques of a question that names none."""
