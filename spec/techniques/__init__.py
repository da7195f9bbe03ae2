"""The values of each technique, one file a technique.

Enters: a layer's strategy, its layer, number formats and stack.
Leaves: one ``TechniqueValue`` each, in the tuple ``TECHNIQUES``.
Imports: ``spec.technique`` and, inside functions, ``spec.model``; nothing slow at the top, for help
texts are read here.
"""

from __future__ import annotations

from ..technique import Values
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

TECHNIQUES: Values = (
    compile.TECHNIQUE,
    cpu_offload.TECHNIQUE,
    activation_swap.TECHNIQUE,
    quantized_communication.TECHNIQUE,
    address_plan.TECHNIQUE,
    tp_overlap.TECHNIQUE,
    expert_pipelining.TECHNIQUE,
    gradient_windows.TECHNIQUE,
)
"""One entry a module, by the name in a plan; the other packages list theirs in this order."""
