"""Label-setting dynamic programming over the layers of a stage.

A label is a choice of strategies for the first n layers: seconds, bytes, parent. Extending by a
layer adds its options; dominated labels are dropped. Layers of one class are interchangeable, so a
label is in effect a count of each strategy. The final labels are the trade-off between time and
memory.

Where options use granted tiers, bytes are a vector. Labels over a tier's budget are dropped, the
others compared within cells of it only: a cell's labels use about as much of every tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...spec.strategy import LayerStrategy
from ..space.memory_budget import Budget
from ..tables.arrays import NO_TIERS, Bools, Floats, Ints, masked
from ..tables.option_table import OptionTable

MAX_LABELS = 128
TIER_CELLS, MAX_CELL_LABELS = 12, 16
"""Parts of a tier's budget within which labels are compared, and labels kept of each."""


@dataclass(frozen=True, slots=True)
class LayerLabels:
    """Pareto-optimal choices after some layers, by growing bytes.

    Without ``tier_bytes``, shape (tiers, labels), by falling seconds too.
    """

    seconds: Floats
    bytes: Floats
    parents: Ints
    choices: Ints
    tier_bytes: Floats


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Strategies of a stage's layers within a budget; ``bytes`` by memory."""

    seconds: float
    bytes: Budget
    strategies: tuple[LayerStrategy, ...]


@dataclass(frozen=True, slots=True)
class _Options:
    """Pareto front of a layer class's options, at fixed in-flight micro-batches.

    A choice with a dominated option is dominated too, so nothing is lost.
    """

    seconds: Floats
    bytes: Floats
    strategies: tuple[LayerStrategy, ...]
    tier_bytes: Floats

    @classmethod
    def of(cls, table: OptionTable, in_flight: float) -> _Options:
        seconds, bytes_ = table.step_estimate_s, table.bytes_at(in_flight)
        tier_bytes = table.tier_bytes_at(in_flight)
        if tier_bytes.any():
            rows = _vector_front(np.concatenate([bytes_[None], tier_bytes, seconds[None]]))
        else:
            rows = pareto_front(bytes_, seconds)
        strategies = tuple(table.strategies[row] for row in rows.tolist())
        return cls(seconds[rows], bytes_[rows], strategies, masked(tier_bytes, rows))


def pareto_front(bytes_: Floats, seconds: Floats) -> Ints:
    """Non-dominated rows, by growing bytes; the first of equal ones."""
    order = np.lexsort((seconds, bytes_))
    best = np.minimum.accumulate(seconds[order])
    is_faster = np.ones(len(order), dtype=bool)
    is_faster[1:] = seconds[order][1:] < best[:-1]
    return order[is_faster]


def _vector_front(figures: Floats) -> Ints:
    """Non-dominated columns of (figures, options), by growing first figure."""
    order = np.lexsort(figures[::-1])
    sorted_figures = figures[:, order]
    kept: list[int] = []
    for n in range(len(order)):
        earlier = sorted_figures[:, kept]
        if not (earlier <= sorted_figures[:, n, None]).all(axis=0).any():
            kept.append(n)
    return order[kept]


def _root(tiers: int) -> LayerLabels:
    """The label of no layers."""
    seconds, bytes_ = np.zeros(1), np.zeros(1)
    parents, choices = np.zeros(1, np.int64), np.zeros(1, np.int64)
    return LayerLabels(seconds, bytes_, parents, choices, np.zeros((tiers, 1)))


class LayerSearch:
    """Labels of layer sequences for one stage.

    Args:
        tables: options of each layer class.
        in_flight: micro-batches in flight at the stage's memory peak.
        tier_budget: bytes of each granted tier.
    """

    def __init__(
        self, tables: Mapping[int, OptionTable], in_flight: float, tier_budget: Budget = ()
    ) -> None:
        self._options = {k: _Options.of(table, in_flight) for k, table in tables.items()}
        self._tier_budget = np.array(tier_budget)[:, None]
        self._uses_tiers = any(options.tier_bytes.any() for options in self._options.values())
        self._labels: dict[tuple[int, ...], LayerLabels] = {(): _root(len(tier_budget))}

    def labels(self, layer_classes: tuple[int, ...]) -> LayerLabels:
        """The labels after layers of these classes."""
        missing = len(layer_classes)
        while layer_classes[:missing] not in self._labels:
            missing -= 1
        for length in range(missing, len(layer_classes)):
            before = self._labels[layer_classes[:length]]
            self._labels[layer_classes[: length + 1]] = self._extend(before, layer_classes[length])
        return self._labels[layer_classes]

    def _extend(self, labels: LayerLabels, layer_class: int) -> LayerLabels:
        options = self._options[layer_class]
        seconds = (labels.seconds[:, None] + options.seconds[None, :]).ravel()
        bytes_ = (labels.bytes[:, None] + options.bytes[None, :]).ravel()
        count, tiers = len(options.strategies), len(labels.tier_bytes)
        if self._uses_tiers:
            sums = labels.tier_bytes[:, :, None] + options.tier_bytes[:, None, :]
            tier_bytes: Floats = sums.reshape(tiers, -1)
            rows = self._rows_by_cell(seconds, bytes_, tier_bytes)
        else:
            rows = _thin(pareto_front(bytes_, seconds), MAX_LABELS)
            tier_bytes = np.zeros((tiers, len(seconds))) if tiers else NO_TIERS
        return LayerLabels(
            seconds[rows], bytes_[rows], rows // count, rows % count, masked(tier_bytes, rows)
        )

    def _rows_by_cell(self, seconds: Floats, bytes_: Floats, tier_bytes: Floats) -> Ints:
        """Rows of labels to keep, within each tier's budget, by growing bytes."""
        fitting = np.flatnonzero((tier_bytes <= self._tier_budget).all(axis=0))
        shares = tier_bytes[:, fitting] / self._tier_budget
        cells = np.ceil(shares * TIER_CELLS).astype(np.int64)
        numbers = np.ravel_multi_index(tuple(cells), (TIER_CELLS + 1,) * len(cells))
        kept = []
        for number in np.unique(numbers).tolist():
            rows = fitting[numbers == number]
            kept.append(rows[_thin(pareto_front(bytes_[rows], seconds[rows]), MAX_CELL_LABELS)])
        rows = np.concatenate(kept) if kept else fitting
        return rows[np.lexsort((seconds[rows], bytes_[rows]))]

    def best(self, layer_classes: tuple[int, ...], budget: Budget) -> StageChoice | None:
        """Fastest choice within a budget; None if nothing fits."""
        labels = self.labels(layer_classes)
        label = self._best_label(labels, budget)
        if label is None:
            return None
        chosen = self._trace(layer_classes, label)
        tier_bytes = labels.tier_bytes[:, label].tolist() if len(labels.tier_bytes) else []
        bytes_ = (float(labels.bytes[label]), *tier_bytes)
        return StageChoice(float(labels.seconds[label]), bytes_, chosen)

    def best_seconds(self, layer_classes: tuple[int, ...], budget: Budget) -> float:
        """Seconds of ``best``; infinite if nothing fits."""
        labels = self.labels(layer_classes)
        label = self._best_label(labels, budget)
        return float("inf") if label is None else float(labels.seconds[label])

    def _best_label(self, labels: LayerLabels, budget: Budget) -> int | None:
        """Number of the fastest label within a budget."""
        fitting = int(np.searchsorted(labels.bytes, budget[0], side="right")) - 1
        if fitting < 0 or not self._uses_tiers:
            return fitting if fitting >= 0 else None
        tier_bytes = labels.tier_bytes[:, : fitting + 1]
        fits: Bools = np.all(tier_bytes <= np.array(budget[1:])[:, None], axis=0)
        seconds = np.where(fits, labels.seconds[: fitting + 1], np.inf)
        return int(seconds.argmin()) if fits.any() else None

    def _trace(self, layer_classes: tuple[int, ...], label: int) -> tuple[LayerStrategy, ...]:
        """Strategies of a label, a class's equal ones in long runs."""
        strategies: list[LayerStrategy] = []
        for length in range(len(layer_classes), 0, -1):
            labels = self._labels[layer_classes[:length]]
            options = self._options[layer_classes[length - 1]]
            strategies.append(options.strategies[int(labels.choices[label])])
            label = int(labels.parents[label])
        return _grouped(layer_classes, strategies[::-1])


def _thin(rows: Ints, most: int) -> Ints:
    if len(rows) <= most:
        return rows
    indices = np.linspace(0, len(rows) - 1, most).round().astype(np.int64)
    return rows[np.unique(indices)]


def _grouped(
    layer_classes: tuple[int, ...], strategies: list[LayerStrategy]
) -> tuple[LayerStrategy, ...]:
    """Strategies of runs of one class, in order of first use."""
    grouped: list[LayerStrategy] = []
    start = 0
    while start < len(layer_classes):
        stop = start
        while stop < len(layer_classes) and layer_classes[stop] == layer_classes[start]:
            stop += 1
        run = strategies[start:stop]
        order = {strategy: rank for rank, strategy in enumerate(dict.fromkeys(run))}
        grouped += sorted(run, key=lambda s: order[s])
        start = stop
    return tuple(grouped)
