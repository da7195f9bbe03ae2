"""Techniques of a stack, as far as a framework's files say them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...spec.cluster.stack_spec import StackSpec

WHOLE_OFFLOAD = {"cpu_offload": "cpu_offload=all"}
"""FSDP's CPU offloading takes all states of a layer (torch.distributed.fsdp, CPUOffloadPolicy)."""


def without_techniques(
    stack: StackSpec, unsaid: Collection[str], said: dict[str, str] | None = None
) -> StackSpec:
    """The stack without techniques that no key says, and others with the one word ``said``."""
    limits, words = stack.limits, said or {}
    kept = tuple(words.get(name, name) for name in limits.techniques if name not in unsaid)
    return replace(stack, limits=replace(limits, techniques=kept))
