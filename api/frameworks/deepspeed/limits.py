"""Decisions that DeepSpeed's JSON cannot say, beyond its stack's limits."""

from __future__ import annotations

from dataclasses import replace

from ....spec.cluster.stack_spec import StackSpec
from ..said_techniques import without_techniques

SAID_AXES = ("tp",)
"""Stages and experts are the model's code (PipelineModule, MoE), not the file's."""
UNSAID_SHARD = "hsdp"
"""MiCS, which files before 0.19 may say, and which later releases refuse."""
UNSAID_TECHNIQUES = ("compile",)


def narrow(stack: StackSpec) -> StackSpec:
    """The stack without pipelines, experts apart, MiCS and techniques that no key says."""
    stack = without_techniques(stack, UNSAID_TECHNIQUES)
    axes = tuple(axis for axis in stack.limits.axes if axis in SAID_AXES)
    shard = tuple(kind for kind in stack.limits.shard if kind != UNSAID_SHARD)
    return replace(stack, limits=replace(stack.limits, axes=axes, shard=shard))
