"""Decisions that accelerate's YAML cannot say, beyond its stack's limits."""

from __future__ import annotations

from dataclasses import replace

from ....spec.cluster.stack_spec import StackSpec
from ..said_techniques import WHOLE_OFFLOAD, without_techniques

UNSAID_TECHNIQUES = ("compile",)


def narrow(stack: StackSpec) -> StackSpec:
    """The stack without the techniques that no key says, and replicas of rings.

    A ring that shards alone has a ``dp_shard_size`` of 1, which ``ParallelismConfig`` refuses
    beside replicas; larger ones are left out with it.
    """
    rings = tuple(kind for kind in stack.limits.context_shard if kind != "hsdp")
    limits = replace(stack.limits, context_shard=rings)
    narrowed = replace(stack, limits=limits)
    return without_techniques(narrowed, UNSAID_TECHNIQUES, WHOLE_OFFLOAD)
