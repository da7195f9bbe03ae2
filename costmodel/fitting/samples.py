"""Rows to fit on: features, base and measured time, from timed grids."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device, device
from ...datasets.measured.timed_grid import FOLDER, SHARED_HEADS, TimedGrid, timed_grid
from ..arrays import Floats
from ..kernel_latency.attention_features import Flash, attention_features, base_seconds
from ..kernel_latency.experts_features import FusedExperts, experts_features
from ..kernel_latency.experts_features import base_seconds as experts_base_seconds
from ..kernel_latency.forest import Rows
from ..kernel_latency.gemm_features import gemm, gemm_features
from ..kernel_latency.roofline import kernel_seconds

StringArray = NDArray[np.str_]
NOT_GATED = frozenset(
    {
        (2688, 1856, 6, 128),
        (1024, 2688, 22, 512),
        (2048, 5120, 22, 512),
        (4096, 2688, 22, 512),
        (8192, 5120, 22, 512),
    }
)
"""Hidden, ffn, topk and experts of models with ungated experts: Nemotron-3 (squared ReLU;
NVIDIA, Nemotron 3, 2025).
"""
DeviceLookup = Callable[[str], Device]
"""Figures of a device by name: the catalogue's, or fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One measurement per row.

    ``base_s``: analytic price that targets are ratios to; ``sizes``: values of each axis by row.
    """

    features: Rows
    base_s: Floats
    time_s: Floats
    device: StringArray
    dtype: StringArray
    sizes: Mapping[str, NDArray[np.int64]]

    @property
    def targets(self) -> Floats:
        """log(measured / base)."""
        log_ratios: Floats = np.log(self.time_s / self.base_s)
        return log_ratios

    def where(self, keep: NDArray[np.bool_]) -> Samples:
        """Rows marked by ``keep``."""
        return Samples(
            features=self.features[keep],
            base_s=self.base_s[keep],
            time_s=self.time_s[keep],
            device=self.device[keep],
            dtype=self.dtype[keep],
            sizes={name: values[keep] for name, values in self.sizes.items()},
        )


def gemm_samples(lookup: DeviceLookup = device) -> Samples:
    """Matrix products of the grid."""
    grid = timed_grid("gemm")

    def row(name: str, dtype: str, m: int, n: int, k: int) -> tuple[tuple[float, ...], float]:
        kernel, on = gemm(m, k, n, dtype), lookup(name)
        return gemm_features(kernel, on), kernel_seconds(kernel, on)

    return _samples(grid, row)


def attention_samples(lookup: DeviceLookup = device) -> Samples:
    """Causal forward attention of the grid."""

    def row(
        name: str, dtype: str, head_dim: int, kv_position: int, heads: int, batch: int, seq: int
    ) -> tuple[tuple[float, ...], float]:
        flash = Flash(batch, heads, (*SHARED_HEADS, heads)[kv_position], seq, head_dim, dtype)
        on = lookup(name)
        return attention_features(flash, on), base_seconds(flash, on)

    return _samples(timed_grid("attention"), row)


def experts_samples(lookup: DeviceLookup = device) -> Samples:
    """Fused expert layers of the grid, ``model`` by number."""
    models = expert_models()

    def row(
        name: str, dtype: str, model: int, uneven: int, tp: int, ep: int, tokens: int
    ) -> tuple[tuple[float, ...], float]:
        hidden, ffn, topk, experts = models[model]
        gated = models[model] not in NOT_GATED
        layer = FusedExperts(tokens, hidden, ffn, topk, experts, tp, ep, gated, bool(uneven), dtype)
        on = lookup(name)
        return experts_features(layer, on), experts_base_seconds(layer, on)

    return _samples(timed_grid("experts"), row)


def expert_models() -> list[tuple[int, int, int, int]]:
    """Hidden, ffn, topk and experts by number."""
    path = FOLDER / "experts.json"
    return [tuple(model) for model in json.loads(path.read_text(encoding="utf-8"))["models"]]


def _samples(grid: TimedGrid, row: Callable[..., tuple[tuple[float, ...], float]]) -> Samples:
    names = list(grid.axes)
    timed = np.argwhere(np.isfinite(grid.seconds))
    features, bases, tables = [], [], []
    for table, *position in timed.tolist():
        sizes = [grid.axes[name][i] for name, i in zip(names, position, strict=True)]
        values, base_s = row(*grid.tables[table], *sizes)
        features.append(values)
        bases.append(base_s)
        tables.append(grid.tables[table])
    return Samples(
        features=np.array(features, dtype=np.float32),
        base_s=np.array(bases),
        time_s=np.array([float(grid.seconds[tuple(position)]) for position in timed]),
        device=np.array([name for name, _ in tables]),
        dtype=np.array([dtype for _, dtype in tables]),
        sizes={name: np.array(grid.axes[name])[timed[:, 1 + i]] for i, name in enumerate(names)},
    )
