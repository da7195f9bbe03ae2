"""Timed grids: seconds of a kernel over sizes, by device.

``NAME.npy`` holds float32 seconds of shape (tables, *axes), NaN where nothing was measured, and is
memory mapped; ``NAME.json`` beside it names tables, axes and source.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
SHARED_HEADS = (1, 2, 4, 8, 16)
"""Key and value heads at the first positions of attention's axis ``kv_place``; at the last one
they are as many as heads.
"""
LONGEST_S = 60.0
"""No kernel of the tables takes a minute; a time in milliseconds would."""
Seconds = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedGrid:
    """Measured seconds of one kind of kernel.

    ``tables`` are (device of the catalogue, compute type) in the order of the first axis of
    ``seconds``; ``axes`` maps each other axis to its ascending sizes, in order.
    """

    name: str
    source: str
    tables: tuple[tuple[str, str], ...]
    axes: Mapping[str, tuple[int, ...]]
    seconds: Seconds

    def table(self, device: str, dtype: str) -> Seconds | None:
        """Seconds over the axes on one device; None if nothing was measured."""
        key = (device, dtype)
        return self.seconds[self.tables.index(key)] if key in self.tables else None


@cache
def timed_grid(name: str) -> TimedGrid:
    """The bundled grid of that name, checked once a process."""
    return read_timed_grid(FOLDER / f"{name}.json")


def read_timed_grid(path: Path) -> TimedGrid:
    """Read a grid by its description; the numbers lie beside it.

    A bundled grid is part of the program, and tests would find the fault before any user.

    Raises:
        ValueError: a wrong grid; names the file, the table and the sizes.
    """
    description = json.loads(path.read_text(encoding="utf-8"))
    seconds = np.load(path.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
    axes = {name: tuple(sizes) for name, sizes in description["axes"].items()}
    tables = tuple((device, dtype) for device, dtype in description["tables"])
    grid = TimedGrid(
        name=path.stem, source=description["source"], tables=tables, axes=axes, seconds=seconds
    )
    _check(grid, path)
    return grid


def _check(grid: TimedGrid, path: Path) -> None:
    shape = (len(grid.tables), *(len(sizes) for sizes in grid.axes.values()))
    if grid.seconds.shape != shape or grid.seconds.dtype != np.float32:
        actual = f"{grid.seconds.dtype} {grid.seconds.shape}"
        raise ValueError(f"{path.with_suffix('.npy')}: {actual}, not float32 {shape}")
    for name, sizes in grid.axes.items():
        if list(sizes) != sorted(set(sizes)):
            raise ValueError(f"{path}: axes.{name} does not ascend")
    if len(set(grid.tables)) < len(grid.tables):
        raise ValueError(f"{path}: tables repeats a device and type")
    measured = np.isfinite(grid.seconds)
    bad = measured & ~((grid.seconds > 0) & (grid.seconds < LONGEST_S))
    for table, *indices in np.argwhere(bad | np.isinf(grid.seconds))[:1]:
        named = zip(grid.axes.items(), indices, strict=True)
        point = {name: axis[number] for (name, axis), number in named}
        value = float(grid.seconds[(table, *indices)])
        where = f"{path.with_suffix('.npy')}: {grid.tables[table]}, {point}"
        raise ValueError(f"{where}: {value} s is no time")
    for table, times in zip(grid.tables, grid.seconds, strict=True):
        if not math.isfinite(float(np.nanmin(times))):
            raise ValueError(f"{path}: {table} has no times")
