"""Decisions that Megatron Bridge's fields cannot say, beyond its stack's limits."""

from __future__ import annotations

from ....spec.cluster.stack_spec import StackSpec
from ..megatron import limits


def narrow(stack: StackSpec) -> StackSpec:
    """The stack as Megatron-LM's arguments say it: the fields are those of the same core."""
    return limits.narrow(stack)
