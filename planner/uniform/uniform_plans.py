"""Uniform plans of a shape: bounds, estimates and bytes of all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ...spec.model.model_spec import BlockLayer
from ...spec.plan.layer_cuts import Boundaries, cuts
from ...spec.strategy import LayerStrategy
from ..bounds.shape_bounds import ShapeBounds
from ..candidates.evaluator import Decision
from ..dynamic_programming.enumeration import StageWork, StepBound
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats
from ..tables.option_table import OptionTable
from .uniform_strategies import UniformStrategies

Contents = tuple[tuple[int, int], ...]
"""Number of a table, and how many layers of a stage have it."""


class StageSeconds(NamedTuple):
    """Seconds of a stage under each uniform strategy: bounds, and the estimate of its step."""

    work_s: Floats
    reductions_s: Floats
    microbatch_s: Floats
    estimate_s: Floats


class UniformShapePlans:
    """Uniform plans of a shape, in the cuts of its stack.

    Args:
        bounds: of shapes.
        strategies: uniform ones.
        shape: the shape.
    """

    is_enumerable = True

    def __init__(
        self, bounds: ShapeBounds, strategies: UniformStrategies, shape: PipelineShape
    ) -> None:
        self._bounds = bounds
        self._space = bounds.tables.space
        self._rows = strategies.of(shape)
        self.shape = shape
        self._stage_seconds: dict[Contents, StageSeconds] = {}

    @property
    def strategies(self) -> tuple[LayerStrategy, ...]:
        """Uniform strategies of the plans, row by row."""
        return self._rows.uniform

    @property
    def count(self) -> int:
        """Number of plans."""
        return len(self.strategies) * len(self._cuts)

    @cached_property
    def _cuts(self) -> tuple[Boundaries, ...]:
        shape, layers = self.shape, self._space.layers
        is_block = [isinstance(layer, BlockLayer) for layer in layers]
        rule = self._space.request.stack.limits.layer_cut
        return tuple(cuts(rule, is_block, shape.kind, shape.stages, shape.chunks))

    @cached_property
    def _tables(self) -> list[OptionTable]:
        by_class = self._rows.by_class
        return self._bounds.tables.of(self.shape, lambda c, ranks, samples: by_class[c])

    def boundaries(self) -> Iterator[Boundaries]:
        """Every cut, the most even first."""
        return iter(self._cuts)

    def decision(self, boundaries: Boundaries, row: int) -> Decision:
        """The plan of one uniform strategy."""
        strategies = self._rows.layers(self._space.layer_classes, row)
        return Decision(self.shape, boundaries, strategies)

    def bounded(
        self, boundaries: tuple[int, ...], limit_s: float
    ) -> Iterator[tuple[float, Decision]]:
        """Plans within boundaries and below ``limit_s``, by growing bound."""
        bounds_s = self.bounds_s(boundaries)
        for row in np.argsort(bounds_s, kind="stable").tolist():
            if bounds_s[row] >= limit_s:
                return
            yield float(bounds_s[row]), self.decision(boundaries, row)

    def bounds_s(self, boundaries: Boundaries) -> Floats:
        """Proven seconds of each plan of a cut; infinite where memory overflows."""
        step = StepBound(self.shape.fills_and_drains)
        budget = self._bounds.contexts.live_budget_bytes(self.shape)
        for stage in range(self.shape.stages):
            seconds = self._seconds(self._contents(stage, boundaries))
            live_bytes = self._bytes(stage, boundaries, extra=False)
            work = (seconds.work_s, seconds.reductions_s, seconds.microbatch_s)
            step.add([StageWork(*work, live_bytes > budget)])
        seconds_s = step.seconds + self._bounds.quick.end_s(self.shape)
        return np.where(step.overflow, np.inf, seconds_s)

    def estimates(self, boundaries: Boundaries) -> tuple[Floats, Floats]:
        """Likely seconds of each plan of a cut, and bytes of its fullest stage."""
        rows, shape = len(self.strategies), self.shape
        longest_s, largest, fill_s = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        first_s: Floats = np.zeros(rows)
        for stage in range(shape.stages):
            seconds = self._seconds(self._contents(stage, boundaries))
            first_s = np.where(seconds.estimate_s > longest_s, seconds.microbatch_s, first_s)
            longest_s = np.maximum(longest_s, seconds.estimate_s)
            largest = np.maximum(largest, self._bytes(stage, boundaries, extra=True))
            fill_s = fill_s + seconds.microbatch_s
        filled = shape.chunks * (1 if shape.fills_and_drains or shape.kind == "interleaved" else 3)
        end_s = self._bounds.quick.end_s(shape)
        return longest_s + (fill_s - first_s) / filled + end_s, largest

    def _runs(self, stage: int, boundaries: Boundaries) -> list[tuple[int, int]]:
        """First layer of each chunk of a stage, and that after its last."""
        runs = list(pairwise(boundaries))
        return [runs[self.shape.position(stage, c)] for c in range(self.shape.chunks)]

    def _contents(self, stage: int, boundaries: Boundaries) -> Contents:
        """Tables of a stage's layers, by number, with their counts."""
        counts = Counter[int]()
        for start, stop in self._runs(stage, boundaries):
            counts.update(dict(self._layers(start, stop)))
        return tuple(sorted(counts.items()))

    def _layers(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Number of each table among some layers, with its count."""
        for number, before in self._counts_before.items():
            if count := before[stop] - before[start]:
                yield number, count

    @cached_property
    def _counts_before(self) -> dict[int, list[int]]:
        """Layers of each table before a layer, by the number of its first layer."""
        numbers: dict[int, int] = {}
        layers = [numbers.setdefault(id(table), n) for n, table in enumerate(self._tables)]
        return {
            number: list(accumulate((layer == number for layer in layers), initial=0))
            for number in numbers.values()
        }

    def _seconds(self, contents: Contents) -> StageSeconds:
        """Seconds of a stage of these layers; equal stages share them."""
        if contents not in self._stage_seconds:
            sums = [np.zeros(len(self.strategies)) for _ in StageSeconds._fields]
            for number, count in contents:
                table = self._tables[number]
                parts = (
                    table.step_bound_s,
                    table.reductions_s,
                    table.microbatch_s,
                    table.step_estimate_s,
                )
                for total, part in zip(sums, parts, strict=True):
                    total += count * part
            self._stage_seconds[contents] = StageSeconds(*sums)
        return self._stage_seconds[contents]

    def _bytes(self, stage: int, boundaries: Boundaries, extra: bool) -> Floats:
        """Live bytes of a stage's plans, with buffers at the peak (estimate) or certain ones."""
        in_flight = self.shape.first_in_flight(stage)
        total: Floats = np.zeros(len(self.strategies))
        for chunk, (start, stop) in enumerate(self._runs(stage, boundaries)):
            for number, count in self._layers(start, stop):
                table = self._tables[number]
                bytes_ = table.resident_bytes + in_flight[chunk] * table.kept_bytes
                total += count * (bytes_ + table.extra_bytes if extra else bytes_)
        return total
