"""Memory states of published runs that no flag says, by source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..problem.resolve import Problem
from .published_draft import RunDraft

MEMORY_FORMATS = ("gradient", "narrow_gather", "fused_loss")
"""The format that gradients add up in, whether parameters are fp8 alone, whether the loss is one
kernel."""


def memory_formats(draft: RunDraft) -> Mapping[str, Any]:
    """Return kept formats of parameters, gradients and logits.

    Empty for tables of times.
    """
    of_memory = draft.source.get("of_memory", {}) if draft.run.metric_kind else {}
    formats = {name: of_memory[name] for name in MEMORY_FORMATS if name in of_memory}
    for name, value in formats.items():
        draft.assume(name, value, f"not printed; {of_memory['why']}")
    return formats


def with_memory_formats(problem: Problem, states: Mapping[str, Any]) -> Problem:
    """The problem with what :func:`memory_formats` found."""
    work, stack = problem.workload, problem.stack
    gradient = states.get("gradient", work.dtype.gradient)
    narrow = states.get("narrow_gather", stack.narrow_gather)
    loss = states.get("fused_loss", stack.fusion.cross_entropy)
    dtype = replace(work.dtype, gradient=gradient)
    return replace(
        problem,
        workload=replace(work, dtype=dtype),
        stack=replace(
            stack, narrow_gather=narrow, fusion=replace(stack.fusion, cross_entropy=loss)
        ),
    )
