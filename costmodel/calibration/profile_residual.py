"""Refit a machine's kernel prices to the programs that were timed on it.

Rows are log(measured / shipped price). In five folds, by program, each fold is predicted by the
regression and by interpolation between the others; per group of kernels the one that errs less
prices what was not timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device, device
from ...spec.cluster.learned_residual import LearnedResidual
from ...spec.cluster.machine_profile import KernelRow, MachineProfile
from ...spec.errors import InputError
from ...spec.report.work_items import Kernel
from ..arrays import Floats
from ..kernel_latency.profile_table import KernelTable
from ..kernel_latency.refitted import GROUPS, ShippedPrices, group_of, kernel_features
from ..programs.kernel_ridge import fit_ridge

LEAST_ROWS, FOLDS = 20, 5
MOST_RATIO = 1e4
"""A row farther than this from its shipped price, either way, is no measurement."""
LEVEL = 0.8


def with_residual(profile: MachineProfile) -> MachineProfile:
    """The profile with a residual refitted to its kernels, if they suffice.

    Raises:
        InputError: a row is no measurement; names it.
    """
    if len(profile.kernels) < LEAST_ROWS:
        return profile
    return replace(profile, residual=refitted_residual(profile))


def refitted_residual(profile: MachineProfile) -> LearnedResidual:
    """The residual of a profile's kernels over the shipped prices of its device."""
    on = device(profile.device)
    features, targets = _rows(profile.kernels, on)
    center, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    points = (features - center) / scale
    fitted = fit_ridge(points, targets)
    groups = np.array([group_of(_kernel(row)) for row in profile.kernels])
    learned = _folded_errors(points, targets)
    between = _interpolation_errors(profile)
    prices = tuple(group for group in GROUPS if _errs_less(learned, between, groups == group))
    ridge = fitted.ridge
    return LearnedResidual(
        points=tuple(map(_short, ridge.points)),
        weights=_short(ridge.weights),
        center=_short(center),
        scale=_short(scale),
        mean=ridge.mean,
        width=ridge.width,
        groups=tuple(group for group in GROUPS if (groups == group).any()),
        prices=prices,
        error=float(learned.mean()),
        half_width=float(np.quantile(learned, LEVEL)),
    )


def _short(values: Floats) -> tuple[float, ...]:
    """Values of eight digits, which a profile reads in half the time."""
    return tuple(float(f"{value:.8g}") for value in values)


def _errs_less(learned: Floats, between: Floats, here: NDArray[np.bool_]) -> bool:
    """True if the regression errs less on what interpolation knows, or that knows nothing."""
    both = here & np.isfinite(between)
    if not both.any():
        return bool(here.any())
    return bool(learned[both].mean() < between[both].mean())


def _rows(kernels: Sequence[KernelRow], on: Device) -> tuple[Floats, Floats]:
    shipped, features, ratios = ShippedPrices(on), [], []
    for number, row in enumerate(kernels):
        shipped_s = shipped.seconds(_kernel(row))
        ratio = row.time_s / shipped_s
        if not 1 / MOST_RATIO < ratio < MOST_RATIO:
            allowed = f"positive seconds within {MOST_RATIO:g} times the shipped {shipped_s:g}"
            raise InputError(f"kernels.{number}.time_s", row.time_s, allowed)
        features.append(kernel_features(_kernel(row), shipped_s))
        ratios.append(ratio)
    return np.array(features), np.log(ratios)


def _kernel(row: KernelRow) -> Kernel:
    return Kernel(row.op, row.shape, row.dtype, row.flops, row.traffic_bytes)


def _folded_errors(points: Floats, targets: Floats) -> Floats:
    """Relative error of each row, predicted from the other folds."""
    errors = np.zeros(len(targets))
    fold = np.arange(len(targets)) % FOLDS
    for number in range(FOLDS):
        out = fold == number
        ridge = fit_ridge(points[~out], targets[~out]).ridge
        errors[out] = np.abs(np.exp(ridge.at(points[out]) - targets[out]) - 1)
    return errors


def _interpolation_errors(profile: MachineProfile) -> Floats:
    """The same of interpolation; infinite where nothing else like a row was timed."""
    rows, errors = profile.kernels, []
    tables = [
        KernelTable(replace(profile, kernels=_without(rows, fold), kernel_slowdown=1.0), True)
        for fold in range(FOLDS)
    ]
    for number, row in enumerate(rows):
        price = tables[number % FOLDS].price(_kernel(row))
        known = price is not None and price.source == "measured"
        errors.append(abs(price.time_s / row.time_s - 1) if price and known else np.inf)
    return np.array(errors)


def _without(rows: Sequence[KernelRow], fold: int) -> tuple[KernelRow, ...]:
    return tuple(row for number, row in enumerate(rows) if number % FOLDS != fold)
