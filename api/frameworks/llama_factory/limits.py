"""Decisions that LLaMA-Factory's YAML cannot say, beyond its stack's limits."""

from __future__ import annotations

from ....spec.cluster.stack_spec import StackSpec


def narrow(stack: StackSpec) -> StackSpec:
    """The stack as it is."""
    return stack
