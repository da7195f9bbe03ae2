"""Make the bundled data set of tensor programs; run by a maintainer.

    python -m shardwright.profiler.programs.measure FILE.npz

One core; see ``datasets/measured/README.md``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...costmodel.programs.nest import Program
from ...costmodel.programs.packed import packed
from .random_schedules import scheduled
from .timing import AGREEMENT, Compiled, Timed, timed, timed_together
from .walk import walked
from .workloads import FAMILIES, Sizes, drawn_sizes, tvm_module, workload

WORKLOADS, SCHEDULES = 32, 9
LAYERS = 24
BUDGET_S = 3300.0
LEAST_S = 5e-6
SEED = 40
SAVE_EACH = 100


class Recipe(NamedTuple):
    """A program's workload and the seed of its schedule; ``layer``: -1, or the layer it is of."""

    family: str
    sizes: Sizes
    seed: tuple[int, ...]
    layer: int = -1


def recipes(schedules: Iterable[int] = range(SCHEDULES)) -> Iterator[Recipe]:
    """Every program of the data set, a schedule of each workload in turn."""
    workloads = []
    for number, family in enumerate(FAMILIES):
        for place in range(WORKLOADS):
            random = np.random.default_rng((SEED, number, place))
            workloads.append((family, drawn_sizes(family, random), (SEED, number, place)))
    for schedule in schedules:
        for family, sizes, seed in workloads:
            yield Recipe(family, sizes, (*seed, schedule))


def layer_recipes(layer: int) -> list[Recipe]:
    """The programs of a small transformer layer; one head's attention stands for all."""
    random = np.random.default_rng((SEED, 100, layer))
    rows, hidden = int(random.choice((64, 96, 128, 160))), int(random.choice((64, 128, 192, 256)))
    heads, ffn = hidden // 32, 2 * hidden
    pieces: list[tuple[str, Sizes]] = [
        ("rms_norm", (rows, hidden)),
        ("matmul", (rows, 3 * hidden, hidden)),
        *(("attention_scores", (rows, 32)) for _ in range(heads)),
        ("batched_matmul", (heads, rows, 32, rows)),
        ("matmul", (rows, hidden, hidden)),
        ("chain", (rows, hidden, 0)),
        ("rms_norm", (rows, hidden)),
        ("gated_feed_forward", (rows, hidden, ffn)),
        ("matmul", (rows, hidden, ffn)),
        ("chain", (rows, hidden, 0)),
    ]
    return [
        Recipe(family, sizes, (SEED, 100, layer, place), layer)
        for place, (family, sizes) in enumerate(pieces)
    ]


class Row(NamedTuple):
    """A measured program."""

    recipe: Recipe
    program: Program
    timed: Timed


def measured(recipe: Recipe) -> tuple[Row, Compiled] | None:
    """Compile, walk and time a program; None where it is too slow."""
    function = scheduled(workload(recipe.family, recipe.sizes), recipe.seed)
    compiled = Compiled(function)
    result = timed(compiled)
    return None if result is None else (Row(recipe, walked(function), result), compiled)


def write(path: Path, rows: list[Row], layers: dict[int, float], facts: dict[str, Any]) -> None:
    """Write measured programs and the seconds of whole layers."""
    widest = max(len(row.recipe.sizes) for row in rows)
    padded = [(*row.recipe.sizes, *[0] * (widest - len(row.recipe.sizes))) for row in rows]
    families = list(FAMILIES)
    np.savez_compressed(
        path,
        **packed([row.program for row in rows]),
        family=np.array([families.index(row.recipe.family) for row in rows], np.uint8),
        sizes=np.array(padded, np.int32),
        seed=np.array([row.recipe.seed for row in rows], np.int32),
        layer=np.array([row.recipe.layer for row in rows], np.int16),
        time_s=np.array([row.timed.time_s for row in rows]),
        variance_s2=np.array([row.timed.variance_s2 for row in rows]),
        agreement=np.array([row.timed.agreement for row in rows], np.float32),
        layer_number=np.array(list(layers), np.int16),
        layer_s=np.array(list(layers.values())),
    )
    document = {"families": families, **facts}
    path.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class Tally:
    """Measured rows and layers, and what was dropped by reason."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.layers: dict[int, float] = {}
        self.dropped = {"refused": 0, "slow": 0, "below_5_us": 0, "noisy": 0}
        self.tried, self.start_s = 0, time.monotonic()

    def add_layer(self, layer: int) -> None:
        """Measure a layer's programs, alone and one after another."""
        results = [self._measured(recipe) for recipe in layer_recipes(layer)]
        kept = [result for result in results if result is not None]
        if len(kept) == len(results):
            self.rows += [row for row, _ in kept]
            self.layers[layer] = timed_together([compiled for _, compiled in kept])

    def add(self, recipe: Recipe) -> None:
        """Measure a program and keep it where its time says something."""
        result = self._measured(recipe)
        if result is None:
            return
        if result[0].timed.time_s < LEAST_S:
            self.dropped["below_5_us"] += 1
        elif result[0].timed.agreement > 1 + AGREEMENT:
            self.dropped["noisy"] += 1
        else:
            self.rows.append(result[0])

    def _measured(self, recipe: Recipe) -> tuple[Row, Compiled] | None:
        self.tried += 1
        try:
            result = measured(recipe)
        except tvm_module("error").InternalError:  # a schedule that its passes cannot compile
            self.dropped["refused"] += 1
            return None
        self.dropped["slow"] += result is None
        return result

    def write(self, path: Path) -> None:
        """Write everything so far."""
        facts = {
            "tried": self.tried,
            "dropped": self.dropped,
            "duration_s": round(time.monotonic() - self.start_s, 1),
            "cores": os.cpu_count(),
        }
        write(path, self.rows, self.layers, facts)


def main() -> int:
    """Measure every program within the budget and write the file."""
    path, tally = Path(sys.argv[1]), Tally()
    for layer in range(LAYERS):
        tally.add_layer(layer)
    for recipe in recipes():
        if time.monotonic() - tally.start_s > BUDGET_S:
            break
        tally.add(recipe)
        if tally.tried % SAVE_EACH == 0:
            tally.write(path)
    tally.write(path)
    sys.stdout.write(f"{len(tally.rows)} programs, {len(tally.layers)} layers, {tally.dropped}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
