"""Decisions that verl's YAML cannot say, beyond its stacks' limits."""

from __future__ import annotations

from ....spec.cluster.stack_spec import StackSpec
from ..megatron import limits as megatron
from ..said_techniques import WHOLE_OFFLOAD, without_techniques

UNSAID_TECHNIQUES = ("compile",)
"""use_torch_compile compiles the entropy of the logits alone (verl workers/config/actor.py)."""


def narrow(stack: StackSpec) -> StackSpec:
    """The stack as the actor's fields say it: Megatron-LM's are those of the same core."""
    if stack.name.partition(":")[0] == "megatron":
        return megatron.narrow(stack)
    return without_techniques(stack, UNSAID_TECHNIQUES, WHOLE_OFFLOAD)
