"""How chains of passes are weighed: by work, with what shares the device or not, or by traffic.

A pass takes at least as long as each column of ``WEIGHTED_COLUMNS`` says, so at least any mean of
them; of
two that overlap, at least any mean of what they compute and what they communicate. A
*way* is one choice of means for all kinds of passes. All are sound, and the best one counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..tables.pass_kinds import DIRECTIONS, ENDS, KINDS
from ..tables.pass_table import COLUMNS, INSIDE, SHARED, TRAFFIC, WIRE, WORK, PassTable
from .pass_chains import Chain

Floats = NDArray[np.float64]
WEIGHTED_COLUMNS = (WORK, TRAFFIC, SHARED, WIRE)
"""Columns that passes alone are weighed by; SHARED comes on top of WORK."""
OVERLAP_SHARES = (0.0, 0.5, 1.0)
"""Of an overlapping pair: how its inside communication is weighed against its work."""


def _weightings() -> NDArray[np.float64]:
    """How passes are weighed, by the columns of ``WEIGHTED_COLUMNS``: shape (ways, 4, KINDS)."""
    first = np.array([d == 0 and e[0] for d in range(len(DIRECTIONS)) for e in ENDS])
    last = np.array([d > 0 and e[1] for d in range(len(DIRECTIONS)) for e in ENDS])
    ends = (first | last).astype(np.float64)
    by_traffic = [0 * ends, 0 * ends, 1.0 * first, 1.0 * last, ends, ends / 2]
    by_traffic += [np.full(KINDS, share) for share in (0.25, 0.5, 0.75, 1.0)]
    by_wire = [1.0 * first, 1.0 * last, ends, np.ones(KINDS)]
    traffic = np.array(by_traffic + [0 * ends] * len(by_wire))
    wire = np.array([0 * ends] * len(by_traffic) + by_wire)
    shared = np.zeros_like(traffic)
    shared[1] = 1.0
    return np.stack([1.0 - traffic - wire, traffic, shared, wire], axis=1)


WEIGHTINGS = _weightings()


def expand_weightings(weightings: Floats) -> Floats:
    """Weights of ``WEIGHTED_COLUMNS`` among all: (…, 4, KINDS) to (…, COLUMNS, KINDS)."""
    found: Floats = np.zeros((*weightings.shape[:-2], COLUMNS, KINDS))
    found[..., list(WEIGHTED_COLUMNS), :] = weightings
    return found


def chain_weights(chain: Chain, slowdown: float, weightings: Floats = WEIGHTINGS) -> Floats:
    """Weights of the columns of pass tables, shape (roles, ways, COLUMNS, KINDS).

    Args:
        chain: whose passes are weighed.
        slowdown: factor of work and communication while they share the device, at most 2.
        weightings: some of ``WEIGHTINGS``.
    """
    shares = OVERLAP_SHARES if chain.paired.any() else OVERLAP_SHARES[:1]
    found = np.zeros((len(chain.single), len(weightings), len(shares), COLUMNS, KINDS))
    single = chain.single[:, None, None, :] * weightings  # roles, ways, four columns, kinds
    for number, column in enumerate(WEIGHTED_COLUMNS):
        found[:, :, :, column] = single[:, :, None, number]
    for place, share in enumerate(shares):
        beside = chain.paired * (2 - slowdown)
        found[:, :, place, WORK] += (chain.paired - beside * share)[:, None]
        found[:, :, place, INSIDE] += (beside * (2 * share - 1))[:, None]
    return found.reshape(len(chain.single), -1, COLUMNS, KINDS)


def weighted(table: PassTable, weights: Floats) -> Floats:
    """Seconds of the options, shape (options, roles, ways)."""
    flat = weights.reshape(-1, COLUMNS * KINDS)
    used = flat.any(axis=0)
    columns = table.columns.reshape(len(table.strategies), -1)
    return (columns[:, used] @ flat[:, used].T).reshape(-1, *weights.shape[:2])
