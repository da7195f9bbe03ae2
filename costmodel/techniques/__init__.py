"""The prices of techniques, one file a technique: its card is there.

Enters: a layer's strategy, shapes, stack and states.
Leaves: one ``TechniquePrice`` each, in the tuple ``TECHNIQUES``.
Imports: ``costmodel.{technique, technique_spans, pricing, sharding, symbolic}``, ``spec``.
"""

from __future__ import annotations

from ..technique import TechniquePrices
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

TECHNIQUES: TechniquePrices = (
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
