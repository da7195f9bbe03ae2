"""Scores of kernel prices on held-out rows.

Each split holds rows out; the rest is fitted from scratch. Errors are |predicted / measured - 1|,
and in seconds the sum of |predicted - measured| over the sum of measured.

- sizes: a fifth of all (n, k) by seed 0, on every device at once, all m of them.
- family: Hopper (H100, H200), or Blackwell (B200, GB200, GB300, RTX PRO 6000), together; only the
  sizes above are scored, which no other device was fitted on either.
- device: one device, without any timed figure of it (:mod:`held_out_devices`).
- preset products: of one held-out device, products of the preset models in the grid.
- between sizes, between heads: one line of a device's grid, from its neighbors alone.
- heads: one number of heads, on every device at once.
- model: one model of experts, on every device at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device
from ...datasets.measured.timed_grid import timed_grid
from ..kernel_latency.log_grid import filled
from .boosting import DEEPER, fit_forest
from .held_out_devices import untimed_devices
from .preset_products import preset_products
from .samples import Samples, attention_samples, expert_models, experts_samples, gemm_samples

Mask = NDArray[np.bool_]
HOPPER = ("H100-SXM-80GB", "H200-SXM-141GB")
BLACKWELL = ("B200-SXM-180GB", "GB200-186GB", "GB300-279GB", "RTX-PRO-6000-96GB")
DATA_CENTER = (*HOPPER, *BLACKWELL[:3])
"""Devices held out one at a time, of those that train large models."""
FAR = ("A100-SXM-80GB", "L40S-48GB")
HELD_OUT_SHARE = 5
LEAST_SIDE = 512
"""Least held-out side of products: layers of models have no smaller ones."""
MODELS = {
    "DeepSeek-V3": (7168, 2048, 8, 256),
    "Mixtral 8x7B": (4096, 14336, 2, 8),
    "Qwen3 30B": (2048, 768, 8, 128),
    "Qwen3 235B": (4096, 1536, 8, 128),
}
LEVEL = 0.8


class Score(NamedTuple):
    """Errors of one split's rows.

    ``mape``: their mean; ``seconds``: summed error over summed seconds; ``half_width``: the 80 %
    quantile.
    """

    rows: int
    mape: float
    seconds: float
    half_width: float


def score(predicted_s: NDArray[np.float64], measured_s: NDArray[np.float64]) -> Score:
    """The score of rows."""
    errors = np.abs(predicted_s / measured_s - 1)
    summed = float(np.abs(predicted_s - measured_s).sum() / measured_s.sum())
    return Score(len(errors), float(errors.mean()), summed, float(np.quantile(errors, LEVEL)))


def fitted_score(samples: Samples, fitted: Mask, scored: Mask, **settings: Any) -> Score:
    """Trees fitted to some rows, scored on others."""
    training = samples.where(fitted)
    forest = fit_forest(training.features, training.targets, **settings)
    test = samples.where(scored)
    return score(test.base_s * np.exp(forest.at(test.features)), test.time_s)


@cache
def _products() -> Samples:
    return _only_bf16(gemm_samples())


@cache
def _flash() -> Samples:
    return attention_samples()


@cache
def _experts() -> Samples:
    return _only_bf16(experts_samples())


def _only_bf16(samples: Samples) -> Samples:
    return samples.where(samples.dtype == "bf16")


def _held_out_sizes(samples: Samples) -> Mask:
    axes = timed_grid("gemm").axes
    pairs = [(n, k) for n in axes["n"] for k in axes["k"]]
    order = np.random.default_rng(0).permutation(len(pairs))
    held_out = {pairs[i] for i in order[: len(pairs) // HELD_OUT_SHARE]}
    both = zip(samples.sizes["n"].tolist(), samples.sizes["k"].tolist(), strict=True)
    return np.array([pair in held_out for pair in both])


def unseen_sizes() -> Score:
    """Products of held-out sizes, on devices whose other sizes are known.

    Trees fitted to the rest predict them, corrected by neighbors' residuals on the device, as in
    bundled grids.
    """
    samples = _products()
    held_out = _held_out_sizes(samples)
    training = samples.where(~held_out)
    forest = fit_forest(training.features, training.targets)
    log_learned = forest.at(samples.features) + np.log(samples.base_s)
    predicted = np.exp(log_learned)
    known_log_s = np.where(held_out, np.nan, np.log(samples.time_s))
    for name in sorted(set(samples.device)):
        rows = samples.device == name
        positions = _grid_positions(samples.where(rows))
        log_s = filled(
            _on_grid(positions, known_log_s[rows], np.nan),
            _on_grid(positions, log_learned[rows], 0.0),
        )
        predicted[rows] = np.exp(log_s[positions])
    return score(predicted[held_out], samples.time_s[held_out])


def _grid_positions(samples: Samples) -> tuple[NDArray[np.intp], ...]:
    axes = timed_grid("gemm").axes.items()
    return tuple(np.searchsorted(axis, samples.sizes[name]) for name, axis in axes)


def _on_grid(
    positions: tuple[NDArray[np.intp], ...], values: NDArray[np.float64], untimed: float
) -> NDArray[np.float64]:
    grid = np.full([len(axis) for axis in timed_grid("gemm").axes.values()], untimed)
    grid[positions] = values
    return grid


def between(grid: str, axes: tuple[str, ...], least: int = 0) -> Score:
    """Held-out sizes of an axis, one at a time, interpolated between neighbors.

    Without trees, as products are priced between grid sizes, but at twice the distance. Each size
    of ``axes`` from ``least`` on is held out, except the first and the last.
    """
    timings = timed_grid(grid)
    bf16 = [number for number, (_, dtype) in enumerate(timings.tables) if dtype == "bf16"]
    log_s = np.log(timings.seconds[bf16], dtype=np.float64)
    predicted, measured = [], []
    for name in axes:
        sizes = timings.axes[name]
        lines = np.moveaxis(log_s, 1 + list(timings.axes).index(name), 0)
        for i in range(1, len(sizes) - 1):
            if sizes[i] >= least:
                share = math.log(sizes[i] / sizes[i - 1]) / math.log(sizes[i + 1] / sizes[i - 1])
                middle = (1 - share) * lines[i - 1] + share * lines[i + 1]
                is_timed = np.isfinite(middle) & np.isfinite(lines[i])
                predicted.append(np.exp(middle[is_timed]))
                measured.append(np.exp(lines[i][is_timed]))
    return score(np.concatenate(predicted), np.concatenate(measured))


def unseen_family(family: tuple[str, ...]) -> Score:
    """Products of held-out sizes, on devices held out together."""
    samples = _only_bf16(gemm_samples(_untimed(family, "gemm")))
    held_out, of_family = _held_out_sizes(samples), np.isin(samples.device, family)
    return fitted_score(samples, ~held_out & ~of_family, held_out & of_family)


def preset_products_on(name: str) -> Score:
    """Products of preset models on a held-out device."""
    samples = _only_bf16(gemm_samples(_untimed((name,), "gemm")))
    on_device = samples.device == name
    sides = [samples.sizes[side].tolist() for side in ("m", "k", "n")]
    preset_sizes = preset_products()
    is_preset = np.array([shape in preset_sizes for shape in zip(*sides, strict=True)])
    return fitted_score(samples, ~on_device, on_device & is_preset)


def unseen_attention(names: tuple[str, ...]) -> Score:
    """Attention on devices held out together."""
    samples = attention_samples(_untimed(names, "attention"))
    held_out = np.isin(samples.device, names)
    return fitted_score(samples, ~held_out, held_out, **DEEPER)


def unseen_heads(heads: int) -> Score:
    """Attention of one number of heads, held out on every device."""
    held_out = _flash().sizes["heads"] == heads
    return fitted_score(_flash(), ~held_out, held_out, **DEEPER)


def unseen_model(number: int, even: bool) -> Score:
    """Fused experts of model ``number``, on devices whose other models are known.

    ``even``: score only an even routing.
    """
    held_out = _experts().sizes["model"] == number
    scored = held_out & (_experts().sizes["uneven"] == 0) if even else held_out
    return fitted_score(_experts(), ~held_out, scored)


def unseen_experts_device(name: str) -> Score:
    """Fused experts on a held-out device."""
    samples = _only_bf16(experts_samples(_untimed((name,), "experts")))
    held_out = samples.device == name
    return fitted_score(samples, ~held_out, held_out)


def _untimed(targets: tuple[str, ...], grid: str) -> Callable[[str], Device]:
    return untimed_devices(
        targets, [name for name, dtype in timed_grid(grid).tables if dtype == "bf16"]
    )


SPLITS: dict[str, Callable[[], Score]] = {
    "gemm, sizes": unseen_sizes,
    "gemm, between sizes": partial(between, "gemm", ("n", "k"), LEAST_SIDE),
    "attention, between heads": partial(between, "attention", ("heads",)),
    "gemm, Hopper": partial(unseen_family, HOPPER),
    "gemm, Blackwell": partial(unseen_family, BLACKWELL),
    **{f"gemm, presets on {name}": partial(preset_products_on, name) for name in FAR},
    **{f"attention, {name}": partial(unseen_attention, (name,)) for name in DATA_CENTER},
    "attention, Hopper": partial(unseen_attention, HOPPER),
    "attention, Blackwell": partial(unseen_attention, BLACKWELL),
    **{f"attention, {n} heads": partial(unseen_heads, n) for n in (8, 16, 32, 40, 64, 96)},
    **{
        f"experts, {name}": partial(unseen_model, expert_models().index(sizes), even=False)
        for name, sizes in MODELS.items()
    },
    **{
        f"experts, {name}, even": partial(unseen_model, expert_models().index(sizes), even=True)
        for name, sizes in MODELS.items()
    },
    "experts, H100-SXM-80GB": partial(unseen_experts_device, "H100-SXM-80GB"),
}
"""Every split by name; each fits its own forest."""
