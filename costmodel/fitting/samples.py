"""Rows to fit on: features, base and measured time of every measurement of a timed grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import TimedGrid, timed_grid
from ..kernel_latency.attention_features import Flash, attention_features, base_seconds
from ..kernel_latency.forest import Rows
from ..kernel_latency.gemm_features import gemm, gemm_features
from ..roofline import kernel_seconds

Vector = NDArray[np.float64]
Words = NDArray[np.str_]
KEY_VALUE_HEADS = (1, 2, 4, 8, 16, 0)
Known = Callable[[str], Device]
"""What is known of a device by name: the catalogue's figures, or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One measurement a row.

    ``base_s`` is the analytic price that targets are ratios to; ``sizes`` maps the names of the
    grid's axes to each row's values.
    """

    features: Rows
    base_s: Vector
    time_s: Vector
    device: Words
    dtype: Words
    sizes: Mapping[str, NDArray[np.int64]]

    @property
    def targets(self) -> Vector:
        """log(measured / base)."""
        found: Vector = np.log(self.time_s / self.base_s)
        return found

    def where(self, keep: NDArray[np.bool_]) -> Samples:
        """The rows that ``keep`` marks."""
        return Samples(
            features=self.features[keep],
            base_s=self.base_s[keep],
            time_s=self.time_s[keep],
            device=self.device[keep],
            dtype=self.dtype[keep],
            sizes={name: values[keep] for name, values in self.sizes.items()},
        )


def gemm_samples(known: Known = device) -> Samples:
    """Every matrix product of the grid."""
    grid = timed_grid("gemm")

    def row(name: str, dtype: str, m: int, n: int, k: int) -> tuple[tuple[float, ...], float]:
        kernel, on = gemm(m, k, n, dtype), known(name)
        return gemm_features(kernel, on), kernel_seconds(kernel, on)

    return _samples(grid, row)


def attention_samples(known: Known = device) -> Samples:
    """Every causal forward attention of the grid."""

    def row(
        name: str, dtype: str, head_dim: int, place: int, heads: int, batch: int, seq: int
    ) -> tuple[tuple[float, ...], float]:
        flash = Flash(batch, heads, KEY_VALUE_HEADS[place] or heads, seq, head_dim, dtype)
        on = known(name)
        return attention_features(flash, on), base_seconds(flash, on)

    return _samples(timed_grid("attention"), row)


def _samples(grid: TimedGrid, row: Callable[..., tuple[tuple[float, ...], float]]) -> Samples:
    names = list(grid.axes)
    places = np.argwhere(np.isfinite(grid.seconds))
    features, bases, tables = [], [], []
    for table, *place in places.tolist():
        sizes = [grid.axes[name][i] for name, i in zip(names, place, strict=True)]
        values, base_s = row(*grid.tables[table], *sizes)
        features.append(values)
        bases.append(base_s)
        tables.append(grid.tables[table])
    return Samples(
        features=np.array(features, dtype=np.float32),
        base_s=np.array(bases),
        time_s=np.array([float(grid.seconds[tuple(place)]) for place in places]),
        device=np.array([name for name, _ in tables]),
        dtype=np.array([dtype for _, dtype in tables]),
        sizes={name: np.array(grid.axes[name])[places[:, 1 + i]] for i, name in enumerate(names)},
    )
