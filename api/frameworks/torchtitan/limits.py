"""Decisions that torchtitan's configuration cannot say, beyond its stack's limits."""

from __future__ import annotations

from dataclasses import replace

from ....spec.cluster.stack_spec import StackSpec
from ..said_techniques import WHOLE_OFFLOAD, without_techniques

UNSAID_RECOMPUTE = ("selective",)
"""activation_checkpoint.mode selective is per operation or every n-th layer (torchtitan
config/job_config.py); core attention alone is priced for the stack, and no key asks for it."""
UNSAID_TECHNIQUES = ("compile",)
"""compile.enable is a setting of the stack."""


def narrow(stack: StackSpec) -> StackSpec:
    """The stack without the recomputation and techniques that no key says."""
    recompute = tuple(word for word in stack.recompute if word not in UNSAID_RECOMPUTE)
    return without_techniques(replace(stack, recompute=recompute), UNSAID_TECHNIQUES, WHOLE_OFFLOAD)
