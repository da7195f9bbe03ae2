"""Label-setting dynamic programming over the layers of a stage.

A label is a choice of strategies for the first n layers: seconds, bytes, and where it came
from. Extending by a layer adds the layer's options; a label that is no faster and no smaller
than another is dropped. Layers of one kind are interchangeable, so sequences of equal kinds
share their labels, and a label is in effect a count of each strategy. What is left after the
last layer is the trade-off between time and memory, from which a budget picks.
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
    """Undominated choices after some layers, by growing bytes and falling seconds."""

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
    """The undominated options of a layer kind, with so many micro-batches in flight.

    What a dominated option is part of is dominated too, so leaving it out loses nothing.
    """

    seconds: Floats
    bytes: Floats
    strategies: tuple[LayerStrategy, ...]

    @classmethod
    def of(cls, table: OptionTable, in_flight: float) -> _Options:
        seconds, bytes_ = table.step_estimate_s, table.bytes_at(in_flight)
        kept = pareto_front(bytes_, seconds)
        strategies = tuple(table.strategies[row] for row in kept.tolist())
        return cls(seconds[kept], bytes_[kept], strategies)


def pareto_front(bytes_: Floats, seconds: Floats) -> Ints:
    """Rows that no other beats in both, by growing bytes; the first of equal ones."""
    order = np.lexsort((seconds, bytes_))
    best = np.minimum.accumulate(seconds[order])
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = seconds[order][1:] < best[:-1]
    return order[fresh]


ROOT = LayerLabels(np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64))


class LayerSearch:
    """Labels of layer sequences for one stage.

    Args:
        tables: options of each layer kind.
        in_flight: micro-batches whose activations the stage holds at its fullest moment.
    """

    def __init__(self, tables: dict[int, OptionTable], in_flight: float) -> None:
        self._options = {kind: _Options.of(table, in_flight) for kind, table in tables.items()}
        self._labels: dict[tuple[int, ...], LayerLabels] = {(): ROOT}

    def labels(self, layer_classes: tuple[int, ...]) -> LayerLabels:
        """The labels after layers of these kinds."""
        missing = len(layer_classes)
        while layer_classes[:missing] not in self._labels:
            missing -= 1
        for length in range(missing, len(layer_classes)):
            before = self._labels[layer_classes[:length]]
            self._labels[layer_classes[: length + 1]] = self._extend(before, layer_classes[length])
        return self._labels[layer_classes]

    def _extend(self, labels: LayerLabels, kind: int) -> LayerLabels:
        own = self._options[kind]
        seconds = (labels.seconds[:, None] + own.seconds[None, :]).ravel()
        bytes_ = (labels.bytes[:, None] + own.bytes[None, :]).ravel()
        kept = _thin(pareto_front(bytes_, seconds))
        options = len(own.strategies)
        return LayerLabels(seconds[kept], bytes_[kept], kept // options, kept % options)

    def best(self, layer_classes: tuple[int, ...], budget_bytes: float) -> StageChoice | None:
        """The fastest choice within a budget, None if nothing fits."""
        labels = self.labels(layer_classes)
        fitting = int(np.searchsorted(labels.bytes, budget_bytes, side="right")) - 1
        if fitting < 0:
            return None
        chosen = self._trace(layer_classes, fitting)
        return StageChoice(float(labels.seconds[fitting]), float(labels.bytes[fitting]), chosen)

    def best_seconds(self, layer_classes: tuple[int, ...], budget_bytes: float) -> float:
        """Seconds of :meth:`best`, infinite if nothing fits."""
        labels = self.labels(layer_classes)
        fitting = int(np.searchsorted(labels.bytes, budget_bytes, side="right")) - 1
        return float(labels.seconds[fitting]) if fitting >= 0 else float("inf")

    def _trace(self, layer_classes: tuple[int, ...], place: int) -> tuple[LayerStrategy, ...]:
        """Strategies behind a label; those of one kind grouped, so that runs are long."""
        found: list[LayerStrategy] = []
        for length in range(len(layer_classes), 0, -1):
            labels = self._labels[layer_classes[:length]]
            options = self._options[layer_classes[length - 1]]
            found.append(options.strategies[int(labels.choices[place])])
            place = int(labels.parents[place])
        return _grouped(layer_classes, found[::-1])


def _thin(rows: Ints) -> Ints:
    """At most MAX_LABELS labels, evenly spaced, the first and the last among them."""
    if len(rows) <= MAX_LABELS:
        return rows
    places = np.linspace(0, len(rows) - 1, MAX_LABELS).round().astype(np.int64)
    return rows[np.unique(places)]


def _grouped(
    layer_classes: tuple[int, ...], strategies: list[LayerStrategy]
) -> tuple[LayerStrategy, ...]:
    """The strategies of equal neighbouring kinds in order of first use."""
    found: list[LayerStrategy] = []
    start = 0
    while start < len(layer_classes):
        stop = start
        while stop < len(layer_classes) and layer_classes[stop] == layer_classes[start]:
            stop += 1
        run = strategies[start:stop]
        order = {strategy: place for place, strategy in enumerate(dict.fromkeys(run))}
        found += sorted(run, key=lambda s: order[s])
        start = stop
    return tuple(found)
