"""Weightings of chains of passes: by work, overlapped or not, or traffic.

A pass takes at least as long as each of ``WEIGHTED_COLUMNS`` says, so at least any mean of them;
two overlapping passes at least any mean of their computation and communication. A *weighting* is
one choice of means for all pass kinds. All are sound; the best one counts.
"""

from __future__ import annotations

import numpy as np

from ..tables.arrays import Floats, Records, as_matrix
from ..tables.pass_kinds import DIRECTIONS, ENDS, KINDS, STEP_END
from ..tables.pass_table import PASS_COLUMNS, PassTable
from .pass_chains import Chain

WEIGHTED_COLUMNS = ("work", "traffic", "slowdown", "wire")
"""Columns that passes alone are weighted by; slowdown comes on top of work."""
OVERLAP_SHARES = (0.0, 0.5, 1.0)
"""Weights of the communication inside an overlapping pair against its work."""


def _weightings() -> Floats:
    """Weights of passes, by ``WEIGHTED_COLUMNS``: shape (weightings, 4, KINDS)."""
    first, last = (np.zeros(KINDS, dtype=bool) for _ in range(2))
    first[:STEP_END] = [d == 0 and e[0] for d in range(len(DIRECTIONS)) for e in ENDS]
    last[:STEP_END] = [d > 0 and e[1] for d in range(len(DIRECTIONS)) for e in ENDS]
    ends = (first | last).astype(np.float64)
    by_traffic = [0 * ends, 0 * ends, 1.0 * first, 1.0 * last, ends, ends / 2]
    by_traffic += [np.full(KINDS, share) for share in (0.25, 0.5, 0.75, 1.0)]
    by_wire = [1.0 * first, 1.0 * last, ends, np.ones(KINDS)]
    traffic = np.array(by_traffic + [0 * ends] * len(by_wire))
    wire = np.array([0 * ends] * len(by_traffic) + by_wire)
    slowdown = np.zeros_like(traffic)
    slowdown[1] = 1.0
    return np.stack([1.0 - traffic - wire, traffic, slowdown, wire], axis=1)


WEIGHTINGS = _weightings()


def of_column(weightings: Floats, column: str) -> Floats:
    """Weights of a column: (…, 4, KINDS) to (…, KINDS)."""
    return weightings[..., WEIGHTED_COLUMNS.index(column), :]


def weighted_columns(columns: Records) -> Floats:
    """Copy ``WEIGHTED_COLUMNS`` out of ``PASS_COLUMNS``: (rows,) to (rows, 4, KINDS)."""
    return np.stack([columns[name] for name in WEIGHTED_COLUMNS], axis=1)


def expand_weightings(weightings: Floats) -> Records:
    """Weights of ``WEIGHTED_COLUMNS`` as ``PASS_COLUMNS``: (…, 4, KINDS) to (…)."""
    weights: Records = np.zeros(weightings.shape[:-2], PASS_COLUMNS)
    for name in WEIGHTED_COLUMNS:
        weights[name] = of_column(weightings, name)
    return weights


def chain_weights(chain: Chain, slowdown: float, weightings: Floats = WEIGHTINGS) -> Records:
    """Weights of ``PASS_COLUMNS`` on a chain, shape (roles, weightings).

    Args:
        chain: the chain.
        slowdown: factor of work and communication sharing the device, at most 2.
        weightings: some of ``WEIGHTINGS``.
    """
    shares = OVERLAP_SHARES if chain.paired.any() else OVERLAP_SHARES[:1]
    weights = np.zeros((len(chain.single), len(weightings), len(shares)), PASS_COLUMNS)
    single = chain.single[:, None, None, :] * weightings  # roles, weightings, columns, kinds
    for name in WEIGHTED_COLUMNS:
        weights[name] = of_column(single, name)[:, :, None]
    for number, share in enumerate(shares):
        overlapped = chain.paired * (2 - slowdown)
        weights["work"][:, :, number] += (chain.paired - overlapped * share)[:, None]
        weights["overlappable"][:, :, number] += (overlapped * (2 * share - 1))[:, None]
    return weights.reshape(len(chain.single), -1)


def weighted(table: PassTable, weights: Records) -> Floats:
    """Seconds of the options, shape (options, roles, weightings)."""
    matrix = as_matrix(weights)
    used = matrix.any(axis=0)
    columns = as_matrix(table.columns)
    return (columns[:, used] @ matrix[:, used].T).reshape(-1, *weights.shape)
