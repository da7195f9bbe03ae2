"""The least that one chain of a pipeline with fixed cuts takes, without a program.

Every layer takes at least the least of its options in the passes of its position. The layers of
the stage whose memory is looked at share its bytes, by a price of them (:mod:`lagrangian`).
Most pipelines of a large space are far slower than a good plan, and this says so in a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ..space.in_flight import Held
from .chain_weights import WAYS, chain_weights, weighed
from .fixed_cuts import CutPipeline, Floats
from .lagrangian import best_price, bound_at
from .pass_chains import Chain


def least_chain_s(
    cut: CutPipeline,
    chain: Chain,
    held: Mapping[int, Held],
    budget_bytes: float,
    slowdown: float,
    travel_s: Floats,
) -> float:
    """Seconds of a chain at the least, by the work of its passes.

    Args:
        cut: the pipeline.
        chain: of its passes.
        held: what each position of one stage holds at its fullest moment.
        budget_bytes: of that stage.
        slowdown: factor of work and communication while they share the device, at most 2.
        travel_s: least seconds of the messages into each position, going forward and backward,
            shape (2, positions).
    """
    weights = chain_weights(chain, slowdown, WAYS[:1])
    seconds = {kind: weighed(table, weights) for kind, table in cut.tables.items()}
    layers: Counter[tuple[int, int, Held | None]] = Counter()
    for position, counts in enumerate(cut.counts):
        for kind, count in counts.items():
            layers[kind, chain.roles[position], held.get(position)] += count
    free_s = np.zeros(weights.shape[1])
    for (kind, role, own), count in layers.items():
        if own is None:
            free_s += count * seconds[kind][:, role].min(axis=0)
    within_s = [
        _priced_s(
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


def _priced_s(rows: list[tuple[float, Floats, Floats]], budget_bytes: float) -> float:
    return bound_at(rows, best_price(rows, budget_bytes), budget_bytes)[0]
