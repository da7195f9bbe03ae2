"""Possible runs of layers of a pipeline's stages, over all boundaries.

A run is no stage of a plan within T seconds if the stage's own passes, between the first
micro-batch's forward through the layers before it and the last one's backward through them, take
longer. Own passes take at least each layer's seconds at its layer position under a multiplier of
the stage's bytes; so does one micro-batch in the earlier stages. Remaining runs from the first
layer to the last are arcs of a graph: every plan within T is one of its paths.

There are two such chains: the last micro-batch goes back to the first stage as soon as the stage
sends its gradient, or the stage ends with its reductions and deferred weight gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..chains.chain_weights import WEIGHTINGS, expand_weightings, of_column
from ..chains.lagrangian import best_multipliers, priced_s
from ..chains.pass_chains import (
    deferred_weight_passes,
    draining_counts,
    first_stage_counts,
    outer_counts,
    pass_counts,
)
from ..space.in_flight import InFlight
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats, as_matrix
from ..tables.layer_position import LayerPosition, LayerPositions, count_positions
from ..tables.pass_table import once_per_pass

RunPositions = tuple[tuple[LayerPosition, int], ...]
"""Layers of a stage at each layer position."""
ROUNDING = 1e-9
DRAINS = (True, False)
"""The chains of a stage: on to the first stage, or to its own end with every pass."""


class Arc(NamedTuple):
    """Run of layers on a stage: first layer, end, layer positions."""

    start: int
    stop: int
    run: RunPositions


class StageFeasibility:
    """Possible runs of layers of the stages of a one-chunk pipeline.

    Args:
        layer_positions: of the stage context.
        layer_classes: class of every layer.
        shape: the pipeline.
        budget: of a device.
        hops_s: minimum seconds of a message into each stage, forward.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        budget: Budget,
        hops_s: Floats,
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.layer_classes, self.shape = tuple(layer_classes), shape
        self.budget, self.hops_s = budget, hops_s
        self._pass_counts = pass_counts(shape.kind, shape.microbatches)
        self._draining_counts = draining_counts(shape.kind, shape.microbatches)
        self._work_s = np.stack([self._least_work_s(drains) for drains in DRAINS])
        self._runs: dict[tuple[int, int], RunPositions] = {}
        self._canonical: dict[RunPositions, RunPositions] = {}
        self._weighted_s: dict[tuple[LayerPosition, bytes], tuple[Floats, Floats]] = {}
        self._bytes: dict[tuple[int, bool, InFlight], Floats] = {}
        self._costs: dict[LayerPosition, Floats] = {}
        self._least_s: dict[tuple[RunPositions, InFlight, bytes], float] = {}

    def _least_work_s(self, drains: bool) -> Floats:
        """Minimum work of a stage's passes of all layers up to each."""
        counts = self._draining_counts if drains else self._pass_counts
        if drains and self.shape.kind == "zero_bubble":  # some weight passes come later
            counts = np.zeros_like(counts)
        work_s = {k: float((t.columns["work"] @ counts).min()) for k, t in self.tables.items()}
        return np.array(list(accumulate((work_s[k] for k in self.layer_classes), initial=0.0)))

    def arcs(self, within_s: float) -> list[list[Arc]]:
        """Arcs of every stage on paths within a time, if any."""
        arcs = list(self._reachable_arcs(within_s))
        ends = {len(self.layer_classes)}
        for stage in reversed(range(self.shape.stages)):
            arcs[stage] = [arc for arc in arcs[stage] if arc.stop in ends]
            ends = {arc.start for arc in arcs[stage]}
        return arcs

    def _reachable_arcs(self, within_s: float) -> Iterator[list[Arc]]:
        """Arcs of successive stages, from possible ends of earlier ones."""
        layers, stages = len(self.layer_classes), self.shape.stages
        starts = {0: np.zeros(len(DRAINS))}
        for stage in range(stages):
            ends: dict[int, Floats] = {}
            arcs = []
            for start, elapsed_s in starts.items():
                last_s = self._work_s[:, start] + (within_s - elapsed_s) * (1 + ROUNDING)
                most = layers - (stages - 1 - stage)
                first = layers if stage == stages - 1 else start + 1
                for stop in range(first, most + 1):
                    if (self._work_s[:, stop] > last_s).any():
                        break
                    run = self._run(start, stop)
                    if (elapsed_s + self._stage_s(stage, run) > within_s).any():
                        continue
                    arcs.append(Arc(start, stop, run))
                    if stage < stages - 1:
                        after_s = elapsed_s + self._ramp_s(stage, run)
                        end_s = ends.get(stop)
                        ends[stop] = after_s if end_s is None else np.minimum(end_s, after_s)
            starts = ends
            yield arcs

    def _run(self, start: int, stop: int) -> RunPositions:
        key = (start, stop)
        if key not in self._runs:
            run = tuple(sorted(count_positions(self.layer_classes[start:stop]).items()))
            self._runs[key] = self._canonical.setdefault(run, run)
        return self._runs[key]

    def _stage_s(self, stage: int, run: RunPositions) -> Floats:
        """Minimum seconds of a stage's part of each chain."""
        in_flight = self.shape.peak_in_flight(stage)[0]
        return np.array(
            [self._seconds(run, in_flight, self._stage_counts(stage, drains)) for drains in DRAINS]
        )

    def _ramp_s(self, stage: int, run: RunPositions) -> Floats:
        """Minimum seconds of one micro-batch through a stage and on, by chain."""
        in_flight, hop_s = self.shape.peak_in_flight(stage)[0], float(self.hops_s[stage + 1])
        schedule, microbatches = self.shape.kind, self.shape.microbatches
        seconds = []
        for drains in DRAINS:
            counts = outer_counts(schedule, microbatches, drains)
            if drains and stage == 0:
                counts = first_stage_counts(schedule, microbatches)
            seconds.append(self._seconds(run, in_flight, counts) + hop_s * (1 + drains))
        return np.array(seconds)

    def _stage_counts(self, stage: int, drains: bool) -> Floats:
        if not drains or (stage == 0 and self.shape.kind != "zero_bubble"):
            return self._pass_counts
        if self.shape.kind != "zero_bubble":
            return self._draining_counts
        return self._draining_counts - deferred_weight_passes(stage, self.shape.microbatches)

    def _seconds(self, run: RunPositions, in_flight: InFlight, counts: Floats) -> float:
        """Minimum seconds of the passes of a run within a device's bytes."""
        key = (run, in_flight, counts.tobytes())
        if key not in self._least_s:
            self._least_s[key] = self._lagrangian_s(run, in_flight, counts) * (1 - ROUNDING)
        return self._least_s[key]

    def _lagrangian_s(self, run: RunPositions, in_flight: InFlight, counts: Floats) -> float:
        terms = [
            (
                count,
                *self._position_s(layer_position, counts),
                self._bytes_at(layer_position, in_flight),
            )
            for layer_position, count in run
        ]
        rest_s = self._once_per_pass(
            {layer_position.layer_class for layer_position, _ in run}, counts
        )
        unlimited_s = rest_s + sum(count * least_s for count, _, least_s, _ in terms)
        best = int(unlimited_s.argmax())
        rows = [(float(count), seconds[best], bytes_) for count, seconds, _, bytes_ in terms]
        multipliers = best_multipliers(rows, self.budget)
        if not multipliers.any():
            return float(unlimited_s[best])
        bound_s = rest_s
        for multiplier, budget_bytes in zip(multipliers.tolist(), self.budget, strict=True):
            bound_s = bound_s - multiplier * budget_bytes
        for count, seconds, _, bytes_ in terms:
            bound_s = bound_s + count * priced_s(seconds, bytes_, multipliers).min(axis=1)
        return float(max(unlimited_s[best], bound_s.max()))

    def _bytes_at(self, layer_position: LayerPosition, in_flight: InFlight) -> Floats:
        """Bytes of a layer's options by micro-batches in flight, shape (memories, options)."""
        key = (layer_position.layer_class, layer_position.is_last, in_flight)
        if key not in self._bytes:
            table = self.tables[layer_position.layer_class]
            self._bytes[key] = table.memory_at(in_flight, layer_position.is_last)
        return self._bytes[key]

    def _once_per_pass(self, layer_classes: set[int], counts: Floats) -> Floats:
        once_s, least_s = once_per_pass([self.tables[k] for k in layer_classes])
        slowdown, traffic = of_column(WEIGHTINGS, "slowdown"), of_column(WEIGHTINGS, "traffic")
        seconds: Floats = (slowdown * counts) @ once_s + (traffic * counts) @ least_s
        return seconds

    def _position_s(self, layer_position: LayerPosition, counts: Floats) -> tuple[Floats, Floats]:
        """Seconds of a layer's options, shape (weightings, options), and their minima."""
        layer_position = self.layer_positions.equivalent_position(layer_position)
        key = (layer_position, counts.tobytes())
        if key not in self._weighted_s:
            weights = as_matrix(expand_weightings(WEIGHTINGS * counts))
            used = weights.any(axis=0)
            costs = self._option_costs(layer_position)
            seconds = np.ascontiguousarray((costs[:, used] @ weights[:, used].T).T)
            self._weighted_s[key] = seconds, seconds.min(axis=1)
        return self._weighted_s[key]

    def _option_costs(self, layer_position: LayerPosition) -> Floats:
        """``PASS_COLUMNS`` of a layer's options as a matrix, one row an option."""
        if layer_position not in self._costs:
            self._costs[layer_position] = as_matrix(
                self.layer_positions.option_costs(layer_position)
            )
        return self._costs[layer_position]
