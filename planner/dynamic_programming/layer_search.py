"""Label-setting dynamic programming over the layers of a stage.

A label is a choice of strategies for the first n layers: seconds, bytes, parent. Extending by a
layer adds its options; dominated labels are dropped. Layers of one class are interchangeable, so a
label is in effect a count of each strategy. The final labels are the trade-off between time and
memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...spec.strategy import LayerStrategy
from ..tables.arrays import Floats, Ints
from ..tables.option_table import OptionTable

MAX_LABELS = 128


@dataclass(frozen=True, slots=True)
class LayerLabels:
    """Pareto-optimal choices after some layers, by growing bytes and falling seconds."""

    seconds: Floats
    bytes: Floats
    parents: Ints
    choices: Ints


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Strategies of a stage's layers within a budget."""

    seconds: float
    bytes: float
    strategies: tuple[LayerStrategy, ...]


@dataclass(frozen=True, slots=True)
class _Options:
    """Pareto front of a layer class's options, at fixed in-flight micro-batches.

    A choice with a dominated option is dominated too, so nothing is lost.
    """

    seconds: Floats
    bytes: Floats
    strategies: tuple[LayerStrategy, ...]

    @classmethod
    def of(cls, table: OptionTable, in_flight: float) -> _Options:
        seconds, bytes_ = table.step_estimate_s, table.bytes_at(in_flight)
        rows = pareto_front(bytes_, seconds)
        strategies = tuple(table.strategies[row] for row in rows.tolist())
        return cls(seconds[rows], bytes_[rows], strategies)


def pareto_front(bytes_: Floats, seconds: Floats) -> Ints:
    """Non-dominated rows, by growing bytes; the first of equal ones."""
    order = np.lexsort((seconds, bytes_))
    best = np.minimum.accumulate(seconds[order])
    is_faster = np.ones(len(order), dtype=bool)
    is_faster[1:] = seconds[order][1:] < best[:-1]
    return order[is_faster]


ROOT = LayerLabels(np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64))


class LayerSearch:
    """Labels of layer sequences for one stage.

    Args:
        tables: options of each layer class.
        in_flight: micro-batches in flight at the stage's memory peak.
    """

    def __init__(self, tables: dict[int, OptionTable], in_flight: float) -> None:
        self._options = {k: _Options.of(table, in_flight) for k, table in tables.items()}
        self._labels: dict[tuple[int, ...], LayerLabels] = {(): ROOT}

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
        rows = _thin(pareto_front(bytes_, seconds))
        count = len(options.strategies)
        return LayerLabels(seconds[rows], bytes_[rows], rows // count, rows % count)

    def best(self, layer_classes: tuple[int, ...], budget_bytes: float) -> StageChoice | None:
        """Fastest choice within a budget; None if nothing fits."""
        labels = self.labels(layer_classes)
        fitting = int(np.searchsorted(labels.bytes, budget_bytes, side="right")) - 1
        if fitting < 0:
            return None
        chosen = self._trace(layer_classes, fitting)
        return StageChoice(float(labels.seconds[fitting]), float(labels.bytes[fitting]), chosen)

    def best_seconds(self, layer_classes: tuple[int, ...], budget_bytes: float) -> float:
        """Seconds of ``best``; infinite if nothing fits."""
        labels = self.labels(layer_classes)
        fitting = int(np.searchsorted(labels.bytes, budget_bytes, side="right")) - 1
        return float(labels.seconds[fitting]) if fitting >= 0 else float("inf")

    def _trace(self, layer_classes: tuple[int, ...], label: int) -> tuple[LayerStrategy, ...]:
        """Strategies of a label, a class's equal ones in long runs."""
        strategies: list[LayerStrategy] = []
        for length in range(len(layer_classes), 0, -1):
            labels = self._labels[layer_classes[:length]]
            options = self._options[layer_classes[length - 1]]
            strategies.append(options.strategies[int(labels.choices[label])])
            label = int(labels.parents[label])
        return _grouped(layer_classes, strategies[::-1])


def _thin(rows: Ints) -> Ints:
    if len(rows) <= MAX_LABELS:
        return rows
    indices = np.linspace(0, len(rows) - 1, MAX_LABELS).round().astype(np.int64)
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
