"""The least that one chain of a pipeline with fixed cuts takes, without a program.

Every layer takes at least the least of its options in the passes of its position. The layers of
the stage whose memory is looked at share its bytes, by a price of them (:mod:`lagrangian`).
Most pipelines of a large space are far slower than a good plan, and this says so in a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ..space.in_flight import InFlight
from .chain_weights import WEIGHTINGS, chain_weights, weighted
from .fixed_cuts import FixedPipeline, Floats
from .lagrangian import best_multiplier, lagrangian_at
from .pass_chains import Chain


def chain_bound_s(
    cut: FixedPipeline,
    chain: Chain,
    peak_in_flight: Mapping[int, InFlight],
    budget_bytes: float,
    slowdown: float,
    travel_s: Floats,
) -> float:
    """Seconds of a chain at the least, by the work of its passes.

    Args:
        cut: the pipeline.
        chain: of its passes.
        peak_in_flight: what each position of one stage holds at its fullest moment.
        budget_bytes: of that stage.
        slowdown: factor of work and communication while they share the device, at most 2.
        travel_s: least seconds of the messages into each position, going forward and backward,
            shape (2, positions).
    """
    weights = chain_weights(chain, slowdown, WEIGHTINGS[:1])
    seconds = {kind: weighted(table, weights) for kind, table in cut.tables.items()}
    layers: Counter[tuple[int, int, InFlight | None]] = Counter()
    for position, counts in enumerate(cut.counts):
        for kind, count in counts.items():
            layers[kind, chain.roles[position], peak_in_flight.get(position)] += count
    free_s = np.zeros(weights.shape[1])
    for (kind, role, own), count in layers.items():
        if own is None:
            free_s += count * seconds[kind][:, role].min(axis=0)
    within_s = [
        _lagrangian_s(
            [
                (float(count), seconds[kind][:, role, way], cut.tables[kind].bytes_at(own))
                for (kind, role, own), count in layers.items()
                if own is not None
            ],
            budget_bytes,
        )
        for way in range(len(free_s))
    ]
    hops_s = float((chain.hops * travel_s).sum())
    return float((free_s + within_s).max()) + hops_s


def _lagrangian_s(rows: list[tuple[float, Floats, Floats]], budget_bytes: float) -> float:
    return lagrangian_at(rows, best_multiplier(rows, budget_bytes), budget_bytes)[0]
