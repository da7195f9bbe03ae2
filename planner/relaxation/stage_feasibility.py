"""What the stages of a pipeline may hold, however its layers are cut.

A run of layers is no stage of a plan that is done in T seconds if the stage's own passes, after
the first micro-batch went forward through the layers before it and until the last one goes
backward through them again, take longer. Own passes take at least what each layer takes in its
seat under a price of the bytes that the stage may hold; so does one micro-batch in the stages
before. Runs that are left and lead from the first layer to the last are arcs of a graph: every
plan within T is one of its paths, and if there is none, no plan is.

Backwards that are split have two such chains: the last micro-batch's input part goes back to the
first stage, or the stage ends with the weight gradients that it put off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..chains.chain_weights import WEIGHTED_COLUMNS, WEIGHTINGS, expand_weightings
from ..chains.lagrangian import best_multiplier
from ..chains.pass_chains import deferred_weight_passes, outer_counts, pass_counts
from ..space.in_flight import InFlight
from ..space.pipeline_shape import PipelineShape
from ..tables.layer_position import LayerPosition, LayerPositions, count_positions
from ..tables.pass_table import SHARED, TRAFFIC, WORK, once_per_pass

Floats = NDArray[np.float64]
RunPositions = tuple[tuple[LayerPosition, int], ...]
"""Layers of a stage: how many sit in each seat."""
ROUNDING = 1e-9


class Arc(NamedTuple):
    """A run of layers on a stage: its first layer, the one after its last, what they are."""

    start: int
    stop: int
    run: RunPositions


class StageFeasibility:
    """The runs of layers that stages of a pipeline of one chunk each may hold.

    Args:
        layer_positions: of the place.
        layer_classes: the kind of every layer.
        shape: the pipeline.
        budget_bytes: what a device may hold.
        hops_s: least seconds of a message into each stage, forward.
    """

    def __init__(
        self,
        layer_positions: LayerPositions,
        layer_classes: Sequence[int],
        shape: PipelineShape,
        budget_bytes: float,
        hops_s: Floats,
    ) -> None:
        self.layer_positions, self.tables = layer_positions, layer_positions.tables
        self.layer_classes, self.shape = tuple(layer_classes), shape
        self.budget_bytes, self.hops_s = budget_bytes, hops_s
        self._every = pass_counts(shape.kind, shape.microbatches)
        # The last of its chains runs to a stage's end, with every pass of the stage.
        self._drains = (True, False) if shape.kind == "zero_bubble" else (True,)
        work = {k: float((t.columns[:, WORK] @ self._every).min()) for k, t in self.tables.items()}
        self._work = list(accumulate((work[kind] for kind in self.layer_classes), initial=0.0))
        self._runs: dict[tuple[int, int], RunPositions] = {}
        self._canonical: dict[RunPositions, RunPositions] = {}
        self._figures: dict[tuple[LayerPosition, bytes], tuple[Floats, Floats]] = {}
        self._bytes: dict[tuple[int, InFlight], Floats] = {}
        self._columns: dict[LayerPosition, Floats] = {}
        self._least: dict[tuple[RunPositions, InFlight, bytes], float] = {}

    def arcs(self, within_s: float) -> list[list[Arc]]:
        """The arcs of every stage on paths within a time; all lists are empty if there is none."""
        layers, stages = len(self.layer_classes), self.shape.stages
        found = list(self._forward(within_s))
        ends = {layers}
        for stage in reversed(range(stages)):
            found[stage] = [arc for arc in found[stage] if arc.stop in ends]
            ends = {arc.start for arc in found[stage]}
        return found

    def _forward(self, within_s: float) -> Iterator[list[Arc]]:
        """The arcs of stage after stage that start where earlier ones may end."""
        layers, stages = len(self.layer_classes), self.shape.stages
        starts = {0: np.zeros(len(self._drains))}
        for stage in range(stages):
            ends: dict[int, Floats] = {}
            found = []
            for start, before_s in starts.items():
                left_s = within_s - float(before_s[-1])  # of the chain with all own passes
                most = layers - (stages - 1 - stage)
                first = layers if stage == stages - 1 else start + 1
                for stop in range(first, most + 1):
                    if self._work[stop] - self._work[start] > left_s * (1 + ROUNDING):
                        break
                    run = self._run(start, stop)
                    if (before_s + self._own_s(stage, run) > within_s).any():
                        continue
                    found.append(Arc(start, stop, run))
                    if stage < stages - 1:
                        after_s = before_s + self._ramp_s(stage, run)
                        known_s = ends.get(stop)
                        ends[stop] = after_s if known_s is None else np.minimum(known_s, after_s)
            starts = ends
            yield found

    def _run(self, start: int, stop: int) -> RunPositions:
        """The seats of a run; runs that are alike are one object."""
        key = (start, stop)
        if key not in self._runs:
            run = tuple(sorted(count_positions(self.layer_classes[start:stop]).items()))
            self._runs[key] = self._canonical.setdefault(run, run)
        return self._runs[key]

    def _own_s(self, stage: int, run: RunPositions) -> Floats:
        """Least seconds of a stage's own part of each chain."""
        peak_in_flight = self.shape.peak_in_flight(stage)[0]
        found = [
            self._seconds(run, peak_in_flight, self._own_counts(stage, d)) for d in self._drains
        ]
        return np.array(found)

    def _ramp_s(self, stage: int, run: RunPositions) -> Floats:
        """Least seconds of one micro-batch in a stage, and to the next one, on each chain."""
        peak_in_flight, hop_s = self.shape.peak_in_flight(stage)[0], float(self.hops_s[stage + 1])
        p = self.shape
        found = []
        for drains in self._drains:
            counts = outer_counts(p.kind, p.microbatches, drains)
            if p.kind == "zero_bubble" and drains and stage == 0:  # where the chain ends
                counts = counts + deferred_weight_passes(stage, p.microbatches)
            found.append(self._seconds(run, peak_in_flight, counts) + hop_s * (1 + drains))
        return np.array(found)

    def _own_counts(self, stage: int, drains: bool) -> Floats:
        """Passes of a stage from its first forward to its last backward, or to its end."""
        if self.shape.kind != "zero_bubble" or not drains:
            return self._every
        return self._every - deferred_weight_passes(stage, self.shape.microbatches)

    def _seconds(self, run: RunPositions, peak_in_flight: InFlight, counts: Floats) -> float:
        """Least seconds of so many passes of a run within the bytes of a device."""
        key = (run, peak_in_flight, counts.tobytes())
        if key not in self._least:
            self._least[key] = self._lagrangian_s(run, peak_in_flight, counts) * (1 - ROUNDING)
        return self._least[key]

    def _lagrangian_s(self, run: RunPositions, peak_in_flight: InFlight, counts: Floats) -> float:
        parts = [
            (
                count,
                *self._seat_s(layer_position, counts),
                self._bytes_at(layer_position[0], peak_in_flight),
            )
            for layer_position, count in run
        ]
        rest_s = self._rest_s({layer_position[0] for layer_position, _ in run}, counts)
        free_s = rest_s + sum(count * least_s for count, _, least_s, _ in parts)
        way = int(free_s.argmax())
        rows = [(float(count), own[way], bytes_) for count, own, _, bytes_ in parts]
        multiplier = best_multiplier(rows, self.budget_bytes)
        if multiplier <= 0:
            return float(free_s[way])
        found = rest_s - multiplier * self.budget_bytes
        for count, own, _, bytes_ in parts:
            found = found + count * (own + multiplier * bytes_).min(axis=1)
        return float(max(free_s[way], found.max()))

    def _bytes_at(self, kind: int, peak_in_flight: InFlight) -> Floats:
        """Bytes of the options of a layer while its stage holds so much, shape (options,)."""
        if (kind, peak_in_flight) not in self._bytes:
            self._bytes[kind, peak_in_flight] = self.tables[kind].bytes_at(peak_in_flight)
        return self._bytes[kind, peak_in_flight]

    def _rest_s(self, layer_classes: set[int], counts: Floats) -> Floats:
        """What passes of a run have besides its layers, by way."""
        once_s, least_s = once_per_pass([self.tables[kind] for kind in layer_classes])
        shared, traffic = (
            WEIGHTINGS[:, WEIGHTED_COLUMNS.index(column)] for column in (SHARED, TRAFFIC)
        )
        found: Floats = (shared * counts) @ once_s + (traffic * counts) @ least_s
        return found

    def _seat_s(self, layer_position: LayerPosition, counts: Floats) -> tuple[Floats, Floats]:
        """Seconds of the options of a layer in a seat, by way: shape (ways, options), the least."""
        layer_position = self.layer_positions.equivalent_position(layer_position)
        key = (layer_position, counts.tobytes())
        if key not in self._figures:
            flat = expand_weightings(WEIGHTINGS * counts).reshape(len(WEIGHTINGS), -1)
            used = flat.any(axis=0)
            columns = self._seat_columns(layer_position)
            own = np.ascontiguousarray((columns[:, used] @ flat[:, used].T).T)
            self._figures[key] = own, own.min(axis=1)
        return self._figures[key]

    def _seat_columns(self, layer_position: LayerPosition) -> Floats:
        """Columns of the options of a layer in a seat, shape (options, COLUMNS · KINDS)."""
        if layer_position not in self._columns:
            columns = self.layer_positions.columns(layer_position)
            self._columns[layer_position] = columns.reshape(len(columns), -1)
        return self._columns[layer_position]
