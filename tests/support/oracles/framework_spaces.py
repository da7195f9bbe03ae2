"""Random small spaces of what a framework can say, all their plans against the planner."""

from __future__ import annotations

from dataclasses import replace

from generators.random_spaces import random_space
from oracles.stack_spaces import check_best_plans

from shardwright.api.frameworks.shipped import framework_named
from shardwright.datasets.catalogue.stack import stacks


def check_space(name: str, seed: int) -> int:
    """Plans of a random space of a framework, all held against the planner's answer."""
    framework = framework_named(name, "--for")
    space = random_space(seed)
    base = replace(stacks()[framework.stack], attention=space.stack.attention)
    kept = replace(space, stack=framework.narrow(base), restrictions=())
    return check_best_plans(kept, least=0)  # some frameworks say few plans of a small space
