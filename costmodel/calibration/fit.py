"""Fit a calibration: six factors from ten or fewer measured steps.

Of rows r with measured seconds t, and factors f_k, the least of

    sum_r w_r · (ln T_r(f) - ln t_r)² / s²  +  sum_k (ln f_k)² / d_k²

where T_r is the simulated step. ``s`` is a run's spread: one configuration in successive releases
of one source drifts by 3 to 10 %. ``d_k`` is the prior deviation of a shipped price of kind k; with
it ten rows suffice for six factors, and unexercised factors stay as shipped. Weights w (Huber) keep
a mislabeled row from deciding alone. Gauss-Newton, each row simulated once more per derivative.

Each row is then predicted from the others by the leverage h of the linear problem: its residual
over 1 - h. ``interval.py`` derives the interval.

Limits: work missing from the lowering ends up in the factor of the kind that occurs with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ...spec.cluster.calibration import (
    FACTOR_NAMES,
    LARGEST_FACTOR,
    LEAST_FACTOR,
    SHIPPED,
    Calibration,
    Factors,
)
from ..arrays import Floats
from ..pricing.version import PRICING_VERSION
from .interval import OWN_SPREAD, half_width
from .robust_regression import Regression, fitted, median_error

MAX_ROWS = 10
DOUBT = {
    "matmul": 0.2,
    "attention": 0.4,
    "elementwise": 0.4,
    "inner_links": 0.4,
    "outer_links": 0.5,
    "host": 0.7,
}
"""Prior standard deviations of the factors' logarithms."""
ROUNDS = 3
STEP = 0.05
OUTLIER = 2 * OWN_SPREAD
LIMITS = (math.log(LEAST_FACTOR) + 1e-6, math.log(LARGEST_FACTOR) - 1e-6)


class MeasuredStep(NamedTuple):
    """A measured step, and its simulation under factors."""

    name: str
    step_s: float
    simulate: Callable[[Factors], float]


def fit_calibration(
    name: str, device: str, stack: str, rows: Sequence[MeasuredStep], products: str = ""
) -> Calibration:
    """Fit a calibration to one to :data:`MAX_ROWS` measured steps.

    All have the same ``device`` (a catalogue name), ``stack`` and format of ``products``.

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
            doubt=np.array([DOUBT[kind] for kind in FACTOR_NAMES]),
            steps=(STEP,) * len(FACTOR_NAMES),
            rounds=ROUNDS,
            limits=LIMITS,
        )
    )
    width = half_width(fit.residuals, _weights(fit.residuals), fit.own_shares)
    return Calibration(
        name=name,
        device=device,
        stack=stack,
        products=products,
        pricing_version=PRICING_VERSION,
        factors=_factors(fit.point),
        fitted_on=tuple(row.name for row in rows),
        half_width=round(width, 6),
        shipped_error=median_error(fit.shipped),
        fitted_error=median_error(fit.residuals),
        left_out_error=median_error(fit.left_out),
    )


def _factors(logs: Floats) -> Factors:
    values = {kind: round(math.exp(x), 6) for kind, x in zip(FACTOR_NAMES, logs, strict=True)}
    return replace(SHIPPED, **values)


def _residuals(rows: Sequence[MeasuredStep], logs: Floats) -> Floats:
    factors = _factors(logs)
    return np.array([math.log(row.simulate(factors) / row.step_s) for row in rows])


def _weights(residuals: Floats) -> Floats:
    """Huber's weights: a residual beyond :data:`OUTLIER` pulls like one at it."""
    return np.minimum(1.0, OUTLIER / np.maximum(np.abs(residuals), 1e-12))


def _misses(residuals: Floats) -> float:
    size = np.abs(residuals)
    huber = np.where(size <= OUTLIER, size**2, 2 * OUTLIER * size - OUTLIER**2)
    return float(huber.sum() / OWN_SPREAD**2)
