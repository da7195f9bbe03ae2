"""Seeded random spaces of models with experts, half of them under a load that is not even."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

from generators.random_spaces import MOST_PLANS, random_space
from oracles.brute_force import Space

from shardwright.spec.model.model_spec import ModelSpec
from shardwright.spec.workload.expert_load import (
    LayerLoad,
    PowerLoad,
    RoutedLoad,
    expert_counts,
)


def random_load(source: random.Random, model: ModelSpec) -> PowerLoad | RoutedLoad:
    """A power, or shares of each layer of their own, which are further from even late."""
    if source.random() < 0.4:
        return PowerLoad(exponent=source.choice([0.3, 1.0, 2.0]))
    layers = tuple(
        LayerLoad(layer=layer, median=_shares(source, experts, 1), p95=_shares(source, experts, 2))
        for layer, experts in expert_counts(model).items()
    )
    return RoutedLoad(steps=20, digest="sha256:" + "0" * 64, layers=layers)


def _shares(source: random.Random, experts: int, spread: float) -> tuple[float, ...]:
    weights = [source.uniform(0.1, 1) ** spread for _ in range(experts)]
    return tuple(weight / sum(weights) for weight in weights)


def skewed_space(seed: int, most: int = MOST_PLANS, skewed: bool | None = None) -> Space:
    """A random space of a model with experts; ``skewed``: of every other seed if None."""
    source = random.Random(f"load {seed}")
    for number in count():
        space = random_space(100_000 + 100 * seed + number, most)
        if not expert_counts(space.model):
            continue
        if not (seed % 2 == 0 if skewed is None else skewed):
            return space
        load = random_load(source, space.model)
        return replace(space, workload=replace(space.workload, expert_load=load))
    raise AssertionError("endless")
