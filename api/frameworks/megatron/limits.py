"""Decisions that Megatron-LM's arguments cannot say, beyond its stack's limits."""

from __future__ import annotations

from dataclasses import replace

from ....spec.cluster.stack_spec import StackSpec
from ..said_techniques import without_techniques

UNSAID_SCHEDULES = ("gpipe",)
"""Megatron-LM core/pipeline_parallel/schedules.py chooses 1F1B, with or without virtual stages,
from the sizes; no argument asks for all forwards first."""
UNSAID_TECHNIQUES = ("compile", "cpu_offload")
"""torch.compile is the user's code; states offloaded are laid out in another way than is priced."""


def narrow(stack: StackSpec) -> StackSpec:
    """The stack without the schedules and techniques that no argument says."""
    schedules = tuple(kind for kind in stack.schedules if kind not in UNSAID_SCHEDULES)
    return without_techniques(replace(stack, schedules=schedules), UNSAID_TECHNIQUES)
