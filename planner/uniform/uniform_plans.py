"""Uniform plans of a shape: bounds, estimates and bytes of all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...spec.model.model_spec import BlockLayer
from ...spec.plan.layer_cuts import Boundaries, cuts
from ..bounds.shape_bounds import ShapeBounds
from ..candidates.evaluator import Decision
from ..dynamic_programming.enumeration import StageWork, StepBound
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Floats
from ..tables.option_table import OptionTable
from .uniform_strategies import UniformStrategies


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
        self._shape = shape

    @property
    def count(self) -> int:
        """Number of plans."""
        return len(self._rows.uniform) * len(self._cuts)

    @cached_property
    def _cuts(self) -> tuple[Boundaries, ...]:
        shape, layers = self._shape, self._space.layers
        is_block = [isinstance(layer, BlockLayer) for layer in layers]
        rule = self._space.request.stack.limits.layer_cut
        return tuple(cuts(rule, is_block, shape.kind, shape.stages, shape.chunks))

    @cached_property
    def _tables(self) -> list[OptionTable]:
        by_class = self._rows.by_class
        return self._bounds.tables.of(self._shape, lambda c, ranks, samples: by_class[c])

    def boundaries(self) -> Iterator[Boundaries]:
        """Every cut, the most even first."""
        return iter(self._cuts)

    def decision(self, boundaries: Boundaries, row: int) -> Decision:
        """The plan of one uniform strategy."""
        strategies = self._rows.layers(self._space.layer_classes, row)
        return Decision(self._shape, boundaries, strategies)

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
        step = StepBound(self._shape.fills_and_drains)
        budget = self._bounds.contexts.live_budget_bytes(self._shape)
        for stage in range(self._shape.stages):
            sums = self._stage(stage, boundaries)
            work_s, reductions_s, microbatch_s, _, live_bytes, _ = sums
            step.add([StageWork(work_s, reductions_s, microbatch_s, live_bytes > budget)])
        seconds = step.seconds + self._bounds.quick.end_s(self._shape)
        return np.where(step.overflow, np.inf, seconds)

    def estimates(self, boundaries: Boundaries) -> tuple[Floats, Floats]:
        """Likely seconds of each plan of a cut, and bytes of its fullest stage."""
        rows, shape = len(self._rows.uniform), self._shape
        longest_s, largest, fill_s = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        first_s: Floats = np.zeros(rows)
        for stage in range(shape.stages):
            _, _, microbatch_s, estimate_s, _, peak = self._stage(stage, boundaries)
            first_s = np.where(estimate_s > longest_s, microbatch_s, first_s)
            longest_s, largest = np.maximum(longest_s, estimate_s), np.maximum(largest, peak)
            fill_s = fill_s + microbatch_s
        filled = shape.chunks * (1 if shape.fills_and_drains or shape.kind == "interleaved" else 3)
        end_s = self._bounds.quick.end_s(shape)
        return longest_s + (fill_s - first_s) / filled + end_s, largest

    def _stage(self, stage: int, boundaries: Boundaries) -> Sequence[Floats]:
        """Work, reductions, one micro-batch, estimate, live and peak bytes of a stage's plans."""
        rows = len(self._rows.uniform)
        sums = [np.zeros(rows) for _ in range(6)]
        in_flight = self._shape.first_in_flight(stage)
        runs = list(pairwise(boundaries))
        for chunk in range(self._shape.chunks):
            start, stop = runs[self._shape.position(stage, chunk)]
            counts = Counter(id(table) for table in self._tables[start:stop])
            distinct = {id(table): table for table in self._tables[start:stop]}
            for key, count in counts.items():
                table = distinct[key]
                parts = (
                    table.step_bound_s,
                    table.reductions_s,
                    table.microbatch_s,
                    table.step_estimate_s,
                    table.resident_bytes + in_flight[chunk] * table.kept_bytes,
                    table.bytes_at(in_flight[chunk]),
                )
                for total, part in zip(sums, parts, strict=True):
                    total += count * part
        return sums
