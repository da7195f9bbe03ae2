"""Decisions that Galvatron's JSON cannot say, beyond its stack's limits.

Of plans with several strategies it says those whose embedding and head share one, and whose layers
shard as default_dp_type or as zero3 (``layerwise``). Searches are kept to one strategy for all
layers.
"""

from __future__ import annotations

from dataclasses import replace

from ....spec.cluster.stack_spec import StackSpec


def narrow(stack: StackSpec) -> StackSpec:
    """The stack with one strategy for all layers, and blocks in every stage."""
    limits = replace(stack.limits, one_strategy=True, layer_cut="ends")
    return replace(stack, limits=limits)
