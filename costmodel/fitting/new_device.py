"""A device after a few timed products: chosen by the sampler, or at random.

Trees fitted to all other devices predict its products; the residual of the timed ones is refitted
by kernel ridge regression over sizes and over the efficiencies that the other devices reached at
them, which tell kernels apart that sizes alone do not. Every product of the device that was not
timed is scored.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ..arrays import Floats
from ..kernel_latency.gemm_features import NAMES
from ..programs.kernel_ridge import fit_ridge
from ..programs.sampler import chosen_programs
from .boosting import fit_forest
from .program_rows import kernel_rows
from .samples import Samples, gemm_samples
from .scores import _only_bf16, _untimed
from .transformer_fit import ProgramRows, Settings, fit_transformer

THINNED = 5
COUNTS = (20, 50, 100, 200, 500)
SIZES = ("log_m", "log_n", "log_k", "log_roofline_s", "wave_share", "log_waves", "log_intensity")
"""Features that the residual is a smooth function of."""
OTHERS_SCALE = 0.5
"""Of the other devices' efficiencies beside the sizes, both at a spread of one."""
EPOCHS, LAST_LAYER_PENALTY = 25, 10.0


class _Device(NamedTuple):
    points: Floats
    zero_shot_s: Floats
    time_s: Floats


@cache
def _rows(name: str) -> _Device:
    """Products of a device, with what trees of the others say of them."""
    samples = _only_bf16(gemm_samples(_untimed((name,), "gemm")))
    keep = np.zeros(len(samples.time_s), np.bool_)
    keep[::THINNED] = True
    held = samples.device == name
    known = samples.where(keep & ~held)
    forest = fit_forest(known.features, known.targets)
    test, kept = samples.where(held), keep[held]
    columns = [NAMES.index(feature) for feature in SIZES]
    sizes = _scaled(test.features[:, columns].astype(np.float64))
    others = _scaled(_efficiencies(samples, test))
    points = np.concatenate([sizes, OTHERS_SCALE * others], axis=1)
    zero_shot_s = test.base_s * np.exp(forest.at(test.features))
    return _Device(points[kept], zero_shot_s[kept], test.time_s[kept])


def _efficiencies(samples: Samples, test: Samples) -> Floats:
    """log(measured / roofline) of the same products on every other device."""
    columns = []
    for other in sorted(set(samples.device.tolist()) - set(test.device.tolist())):
        rows = samples.where(samples.device == other)
        if any(not np.array_equal(rows.sizes[axis], test.sizes[axis]) for axis in test.sizes):
            raise ValueError(f"{other} was timed at other sizes than {test.device[0]}")
        columns.append(rows.targets)
    return np.stack(columns, axis=1)


def timed_rows(name: str, count: int, seed: int, sampled: bool) -> list[int]:
    """Numbers of the products that are timed.

    ``sampled``: one of each cluster, every product weighing the same, for every one is scored the
    same; else drawn at random.
    """
    points = _rows(name).points
    if sampled:
        return chosen_programs(points, np.ones(len(points)), count, seed)
    drawn: list[int] = np.random.default_rng(seed).permutation(len(points))[:count].tolist()
    return drawn


def error_after(name: str, count: int, seed: int, sampled: bool) -> float:
    """Mean error on a device's other products after ``count`` timed ones."""
    rows, timed = _rows(name), timed_rows(name, count, seed, sampled)
    targets = np.log(rows.time_s / rows.zero_shot_s)
    ridge = fit_ridge(rows.points[timed], targets[timed]).ridge
    errors = np.abs(np.exp(ridge.at(rows.points) - targets) - 1)
    return float(np.delete(errors, timed).mean())


def last_layer_error(name: str, count: int, seed: int) -> float:
    """The same of a transformer whose last layer alone is refitted to the chosen products."""
    hidden, predicted, labels = _transformed(name)
    timed = timed_rows(name, count, seed, True)
    inputs = np.concatenate([_scaled(hidden), np.ones((len(hidden), 1))], axis=1)
    known, rest = inputs[timed], (labels - predicted)[timed]
    middle = float(np.median(rest))
    normal = known.T @ known + LAST_LAYER_PENALTY * np.eye(inputs.shape[1])
    change = middle + inputs @ np.linalg.solve(normal, known.T @ (rest - middle))
    errors = np.abs(np.exp(predicted + change - labels) - 1)
    return float(np.delete(errors, timed).mean())


@cache
def _transformed(name: str) -> tuple[Floats, Floats, Floats]:
    """Inputs of the last layer, predictions and labels of a device's products."""
    rows = kernel_rows("gemm", _untimed((name,), "gemm"), THINNED)
    held = rows.device == name
    every = ProgramRows(rows.leaves, rows.vectors, rows.shipped_base_s, rows.time_s, rows.weights)
    net, test = fit_transformer(every.where(~held), Settings(epochs=EPOCHS)), every.where(held)
    last = net.last(test.leaves, test.devices).astype(np.float64)
    return last, net.at(test.leaves, test.devices), test.labels


def _scaled(features: Floats) -> Floats:
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
