"""Errors of each learner on what was kept back, and the table of who prices what.

    python -m shardwright.costmodel.fitting.learner_scores [SPLIT …]

writes ``datasets/measured/learned_prices.json``: by grid and kind of split the mean errors of the
roofline's stand-in (the analytic base), the trees that ship and the trees on leaves, and the one
that errs least. Given splits are scored anew, the others kept. Splits are by architecture, device
or model of experts, never by row; rows are thinned alike for every learner.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device, device
from ..arrays import Floats
from ..kernel_latency.learned_prices import TABLE, Learner
from .boosting import DEEPER, fit_forest
from .leaf_trees import chosen, fit_leaf_trees, leaf_seconds
from .program_rows import KernelRows, kernel_rows
from .samples import expert_models
from .scores import BLACKWELL, DATA_CENTER, HOPPER, MODELS, _untimed

THINNED = {"attention": 9, "gemm": 8, "experts": 7}
TREES: dict[str, dict[str, Any]] = {"attention": DEEPER, "gemm": {}, "experts": {}}
Mask = NDArray[np.bool_]


class Split(NamedTuple):
    """What is kept back of a grid: devices, or a model of experts by number."""

    grid: str
    kind: str
    devices: tuple[str, ...] = ()
    model: int | None = None

    def held_out(self, rows: KernelRows) -> Mask:
        """Rows that are kept back."""
        if self.model is not None:
            return np.asarray(rows.sizes["model"] == self.model)
        return np.isin(rows.device, self.devices)

    @property
    def lookup(self) -> Callable[[str], Device]:
        """Devices as known without any timed figure of those kept back."""
        return _untimed(self.devices, self.grid) if self.devices else device


def _splits() -> dict[str, Split]:
    unseen, known = "architecture unseen", "architecture known"
    splits = {
        "attention, Hopper": Split("attention", unseen, HOPPER),
        "attention, Blackwell": Split("attention", unseen, BLACKWELL),
        "gemm, Hopper": Split("gemm", unseen, HOPPER),
        "gemm, Blackwell": Split("gemm", unseen, BLACKWELL),
    }
    for name in DATA_CENTER:
        splits[f"attention, {name}"] = Split("attention", known, (name,))
    for name, sizes in MODELS.items():
        number = expert_models().index(sizes)
        splits[f"experts, {name}"] = Split("experts", "model unseen", model=number)
    return splits


SPLITS = _splits()


def split_errors(name: str) -> dict[str, float]:
    """Mean |predicted / measured - 1| of each learner on a split's rows."""
    split = SPLITS[name]
    rows = kernel_rows(split.grid, split.lookup, THINNED[split.grid])
    held = split.held_out(rows)
    known, test = chosen(rows, ~held), chosen(rows, held)
    forest = fit_forest(
        known.shipped, np.log(known.time_s / known.shipped_base_s), **TREES[split.grid]
    )
    predicted: dict[Learner, Floats] = {
        "analytic": test.shipped_base_s,
        "trees": test.shipped_base_s * np.exp(forest.at(test.shipped)),
        "leaf_trees": leaf_seconds(fit_leaf_trees(known), test),
    }
    return {
        learner: float(np.abs(seconds / test.time_s - 1).mean())
        for learner, seconds in predicted.items()
    }


def table(errors: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Who prices what: by grid and kind of split the least mean error over its splits."""
    choices: dict[str, dict[str, str]] = {}
    for split in dict.fromkeys((x.grid, x.kind) for x in SPLITS.values()):
        names = [name for name, x in SPLITS.items() if (x.grid, x.kind) == split and name in errors]
        if names:
            means = {
                learner: statistics.fmean(errors[name][learner] for name in names)
                for learner in errors[names[0]]
            }
            choices.setdefault(split[0], {})[split[1]] = min(means, key=lambda x: (means[x], x))
    return {"errors": errors, "prices": choices}


def main() -> int:
    """Score splits and write the table."""
    errors: dict[str, dict[str, float]] = {}
    if TABLE.exists():
        errors = json.loads(TABLE.read_text(encoding="utf-8"))["errors"]
    for name in sys.argv[1:] or SPLITS:
        errors[name] = {learner: round(x, 4) for learner, x in split_errors(name).items()}
        sys.stdout.write(f"{name}: {errors[name]}\n")
        sys.stdout.flush()
        ordered = {name: errors[name] for name in SPLITS if name in errors}
        text = json.dumps(table(ordered), indent=1) + "\n"
        TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
