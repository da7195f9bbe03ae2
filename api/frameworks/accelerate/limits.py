"""Decisions that accelerate's YAML cannot say, beyond its stack's limits."""

from __future__ import annotations

from ....spec.cluster.stack_spec import StackSpec
from ..said_techniques import WHOLE_OFFLOAD, without_techniques

UNSAID_TECHNIQUES = ("compile",)


def narrow(stack: StackSpec) -> StackSpec:
    """The stack without the techniques that no key says."""
    return without_techniques(stack, UNSAID_TECHNIQUES, WHOLE_OFFLOAD)
