"""Errors on tensor programs of workloads that were kept back.

The bundled programs (``datasets/measured/programs.npz``) are split by workload: a fifth of all
(family, sizes), with every schedule of each. The transformer, the same without positions, trees on
pooled leaves and the roofline (times its median error) predict what was kept back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.measured.timed_grid import FOLDER
from ..arrays import Floats
from ..programs.core_roofline import core_seconds
from ..programs.packed import unpacked
from ..programs.sequence import leaves_of, pooled
from .boosting import fit_forest
from .transformer_fit import ProgramRows, Settings, checked, fit_transformer

FILE = FOLDER / "programs.npz"
KEPT_BACK = 0.2
EPOCHS = 150
TREES: dict[str, Any] = {"trees": 300, "max_depth": 6, "objective": "reg:absoluteerror"}
Mask = NDArray[np.bool_]


class TensorPrograms(NamedTuple):
    """Timed tensor programs.

    ``workload``: a number for each (family, sizes); ``layer``: -1, or the layer that a program is
    of; ``layers``: seconds of whole layers by number.
    """

    rows: ProgramRows
    family: NDArray[np.uint8]
    workload: NDArray[np.intp]
    layer: NDArray[np.int16]
    layers: dict[int, float]


def tensor_programs(path: Path = FILE) -> TensorPrograms:
    """Read timed programs.

    Raises:
        InputError: a time that is none; names the row.
    """
    with np.load(path, allow_pickle=False) as arrays:
        programs = unpacked(arrays)
        keys = np.concatenate([arrays["family"][:, None], arrays["sizes"]], axis=1)
        _, workload = np.unique(keys, axis=0, return_inverse=True)
        layers = dict(zip(arrays["layer_number"].tolist(), arrays["layer_s"].tolist(), strict=True))
        rows = ProgramRows(
            leaves=leaves_of(programs),
            devices=np.zeros((len(programs), 1), np.float32),
            base_s=np.array([core_seconds(program) for program in programs]),
            time_s=arrays["time_s"],
            weights=np.ones(len(programs)),
        )
        return TensorPrograms(
            checked(rows), arrays["family"], workload.ravel(), arrays["layer"], layers
        )


def kept_back(programs: TensorPrograms, seed: int) -> Mask:
    """A fifth of the workloads."""
    numbers = np.unique(programs.workload)
    order = np.random.default_rng(seed).permutation(numbers)
    return np.isin(programs.workload, order[: round(KEPT_BACK * len(numbers))])


def workload_errors(seed: int, epochs: int = EPOCHS) -> dict[str, float]:
    """Mean |predicted / measured - 1| of each learner on kept-back workloads."""
    programs = tensor_programs()
    held = kept_back(programs, seed)
    known, test = programs.rows.where(~held), programs.rows.where(held)
    ratios: dict[str, Floats] = {"roofline": np.full(held.sum(), np.median(known.labels))}
    forest = fit_forest(_tree_rows(known), known.labels, **{**TREES, "seed": seed})
    ratios["trees"] = forest.at(_tree_rows(test))
    for name, positions in (("transformer", True), ("transformer without positions", False)):
        net = fit_transformer(known, Settings(seed=seed, epochs=epochs, positions=positions))
        ratios[name] = net.at(test.leaves, test.devices)
    ratios["both"] = (ratios["trees"] + ratios["transformer"]) / 2
    return {
        name: float(np.abs(np.exp(ratio - test.labels) - 1).mean())
        for name, ratio in ratios.items()
    }


def layer_errors(seed: int = 0, epochs: int = EPOCHS) -> list[float]:
    """Relative error of each layer put together from predicted programs of other workloads."""
    programs = tensor_programs()
    of_layer = programs.layer >= 0
    seen = ~np.isin(programs.workload, programs.workload[of_layer])
    net = fit_transformer(programs.rows.where(seen), Settings(seed=seed, epochs=epochs))
    rows = programs.rows
    predicted = rows.base_s * np.exp(net.at(rows.leaves, rows.devices))
    return [
        float(predicted[programs.layer == number].sum() / seconds - 1)
        for number, seconds in programs.layers.items()
    ]


def _tree_rows(rows: ProgramRows) -> NDArray[np.float32]:
    base = np.log(rows.base_s)[:, None]
    return np.concatenate([pooled(rows.leaves), base], axis=1).astype(np.float32)
