"""Fit a memory calibration: three constants from ten or fewer measured peaks.

Of rows r with measured bytes m, and constants c = (ln of the factor of states, ln of the factor of
activations, bytes of libraries), the least of

    sum_r ln(1 + ((ln M_r(c) - ln m_r) / s)²)  +  sum_k c_k² / d_k²

where M_r is the predicted peak by the count that the row prints. ``s`` is the difference of one
test between two recordings, ``d_k`` the prior deviation of a shipped figure: states are counted
from parameters, activations from saved tensors, and library bytes are known least. The logarithm
(Cauchy's; Holland and Welsch, 1977) lets a misread row decide nothing: allocators repeat themselves
closely, so a large error is of another kind. Seconds do not, so :mod:`fit`'s weights fall less.

Each row is then predicted from the others by leverage. The deviation of these predictions, from the
median of their sizes (one row may be misread) and at least ``s``, sets feasibility's upper bound.

Limits: omissions of the lowering in one kind of layer are spread over all activations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ...spec.cluster.calibration import (
    LARGEST_FACTOR,
    LEAST_FACTOR,
    MemoryCalibration,
    MemoryConstants,
)
from ...spec.units import GIB
from ..arrays import Floats
from .fit import MAX_ROWS
from .robust_regression import Regression, fitted, median_error

OWN_SPREAD = 0.02
"""Assumed: the same test of Megatron-LM on one device, recorded with two containers."""
DOUBT = (0.02, 0.1, 0.1)
"""Prior standard deviations: of both logarithms, and of libraries in GiB."""
ROUNDS = 8
STEPS = (0.01, 0.01, 1 / 1024)
NORMAL = 1.4826
"""A normal deviation over the median of absolute values (Rousseeuw and Croux, 1993)."""


class MeasuredPeak(NamedTuple):
    """A measured peak, and its prediction under constants."""

    name: str
    peak_bytes: float
    predict: Callable[[MemoryConstants], float]


def fit_memory(rows: Sequence[MeasuredPeak]) -> MemoryCalibration:
    """Fit memory constants to one to :data:`~fit.MAX_ROWS` measured peaks.

    All are of one device and stack.

    Raises:
        ValueError: no rows, or too many.
    """
    if not 1 <= len(rows) <= MAX_ROWS:
        raise ValueError(f"1 to {MAX_ROWS} rows, not {len(rows)}")
    fit = fitted(
        Regression(
            residuals=partial(_residuals, rows),
            weights=_weights,
            misses=_misses,
            spread=OWN_SPREAD,
            doubt=np.array(DOUBT),
            steps=STEPS,
            rounds=ROUNDS,
        )
    )
    return MemoryCalibration(
        constants=_constants(fit.point),
        fitted_on=tuple(row.name for row in rows),
        deviation=_deviation(fit.left_out),
        shipped_error=median_error(fit.shipped),
        fitted_error=median_error(fit.residuals),
        left_out_error=median_error(fit.left_out),
    )


def _constants(point: Floats) -> MemoryConstants:
    least, largest = math.log(LEAST_FACTOR) + 1e-6, math.log(LARGEST_FACTOR) - 1e-6
    states, activations = (round(math.exp(x), 6) for x in np.clip(point[:2], least, largest))
    return MemoryConstants(
        states=states, activations=activations, library_bytes=round(point[2] * GIB)
    )


def _residuals(rows: Sequence[MeasuredPeak], point: Floats) -> Floats:
    constants = _constants(point)
    return np.array([math.log(max(1.0, r.predict(constants)) / r.peak_bytes) for r in rows])


def _weights(residuals: Floats) -> Floats:
    """Cauchy's weights: half at a residual of :data:`OWN_SPREAD`, ever less beyond."""
    weights: Floats = 1 / (1 + (residuals / OWN_SPREAD) ** 2)
    return weights


def _misses(residuals: Floats) -> float:
    return float(np.log1p((residuals / OWN_SPREAD) ** 2).sum())


def _deviation(left_out: Floats) -> float:
    deviation = NORMAL * statistics.median(abs(math.expm1(-x)) for x in left_out)
    return round(max(deviation, OWN_SPREAD), 6)
