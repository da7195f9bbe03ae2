"""Minimum seconds of one chain with fixed boundaries, without a program.

Every layer takes at least the minimum of its options in the passes of its position. Layers of the
stage in question share its bytes by a multiplier (``lagrangian``). Most pipelines of a large space
are far slower than a good plan; this proves it in a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ..space.in_flight import InFlight
from ..space.memory_budget import Budget
from ..tables.arrays import Floats
from .chain_weights import WEIGHTINGS, chain_weights, weighted
from .fixed_cuts import FixedPipeline
from .lagrangian import MemoryRows, best_multipliers, lagrangian_s
from .pass_chains import Chain


def chain_bound_s(
    pipeline: FixedPipeline,
    chain: Chain,
    peak_in_flight: Mapping[int, InFlight],
    budget: Budget,
    slowdown: float,
    travel_s: Floats,
) -> float:
    """Minimum seconds of a chain, by the work of its passes.

    Args:
        pipeline: with fixed boundaries.
        chain: of its passes.
        peak_in_flight: in-flight micro-batches by position of one stage at its memory peak.
        budget: of that stage.
        slowdown: factor of work and communication sharing the device, at most 2.
        travel_s: minimum seconds of messages into each position, forward and backward, shape (2,
            positions).
    """
    tables = pipeline.tables
    weights = chain_weights(chain, slowdown, WEIGHTINGS[:1])
    seconds = {layer_class: weighted(table, weights) for layer_class, table in tables.items()}
    layers: Counter[tuple[int, int, InFlight | None]] = Counter()
    for position, class_counts in enumerate(pipeline.class_counts):
        for layer_class, count in class_counts.items():
            layers[layer_class, chain.roles[position], peak_in_flight.get(position)] += count
    unlimited_s = np.zeros(weights.shape[1])
    for (layer_class, role, in_flight), count in layers.items():
        if in_flight is None:
            unlimited_s += count * seconds[layer_class][:, role].min(axis=0)
    limited_s = [
        _lagrangian_s(
            [
                (
                    float(count),
                    seconds[layer_class][:, role, weighting],
                    tables[layer_class].memory_at(in_flight),
                )
                for (layer_class, role, in_flight), count in layers.items()
                if in_flight is not None
            ],
            budget,
        )
        for weighting in range(len(unlimited_s))
    ]
    hops_s = float((chain.hops * travel_s).sum())
    return float((unlimited_s + limited_s).max()) + hops_s


def _lagrangian_s(rows: MemoryRows, budget: Budget) -> float:
    return lagrangian_s(rows, best_multipliers(rows, budget), budget)
