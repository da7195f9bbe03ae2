"""Enumeration of the plans of a small shape, by growing bound.

With fixed boundaries a plan's bound is the maximum over stages of its layers' step bounds, and of
these without reductions plus the earlier stages' minimum micro-batch; plans with certain overflow
are pruned. Bounds of all combinations
are summed as arrays, one axis a layer.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..candidates.evaluator import Decision
from ..space.memory_budget import Budget
from ..space.pipeline_shape import PipelineShape
from ..tables.arrays import Bools, Floats
from ..tables.option_table import OptionTable


def boundary_count(layers: int, shape: PipelineShape) -> int:
    """Number of boundaries of the layers in the chunks of a shape."""
    return math.comb(layers - 1, shape.positions - 1)


def all_boundaries(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """All boundaries of ``chunks`` non-empty runs of ``layers``."""
    for inner in itertools.combinations(range(1, layers), chunks - 1):
        yield (0, *inner, layers)


def bounded_plans(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[OptionTable],
    budget: Budget,
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """Plans within boundaries and below ``limit_s``, by growing bound.

    Args:
        shape: the pipeline shape.
        boundaries: of its chunks.
        tables: options of every layer, in order.
        budget: bytes that certainly fit a device.
        limit_s: exclusive upper limit of bounds.
    """
    one_class = [(table,) for table in tables]
    budgets = [(budget,)] * shape.stages
    yield from bounded_rank_class_plans(shape, boundaries, one_class, budgets, limit_s)


def bounded_rank_class_plans(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[Sequence[OptionTable]],
    budgets: Sequence[Sequence[Budget]],
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """``bounded_plans`` for stages of several rank classes, each a bound.

    Args:
        shape: the pipeline shape.
        boundaries: of its chunks.
        tables: options of every layer, in order, by rank class of its stage.
        budgets: bytes that certainly fit, by stage and rank class.
        limit_s: exclusive upper limit of bounds.
    """
    sizes = [len(by_rank_class[0].strategies) for by_rank_class in tables]
    free_layers = [layer for layer, size in enumerate(sizes) if size != 1] or [0]
    bound = _bounds(shape, boundaries, tables, budgets, free_layers)
    below = np.flatnonzero(bound < limit_s)
    order = below[np.argsort(bound[below], kind="stable")]
    for flat in order.tolist():
        index = np.unravel_index(flat, [sizes[layer] for layer in free_layers])
        rows = {layer: int(row) for layer, row in zip(free_layers, index, strict=True)}
        strategies = tuple(
            by_rank_class[0].strategies[rows.get(layer, 0)]
            for layer, by_rank_class in enumerate(tables)
        )
        yield float(bound[flat]), Decision(shape, boundaries, strategies)


def _bounds(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[Sequence[OptionTable]],
    budgets: Sequence[Sequence[Budget]],
    free_layers: list[int],
) -> Floats:
    """Bound of every combination, flattened; infinite at certain memory overflow.

    Only ``free_layers``, with several options, have an axis: an array has 64 at most.
    """
    sizes = [len(tables[layer][0].strategies) for layer in free_layers]
    axis_of = {layer: axis for axis, layer in enumerate(free_layers)}
    axes = len(sizes)
    step = StepBound(shape.fills_and_drains)
    for stage in range(shape.stages):
        in_flight = shape.first_in_flight(stage)
        classes = []
        for rank_class, budget in enumerate(budgets[stage]):
            work, reductions, microbatch = (np.zeros([1] * axes) for _ in range(3))
            live = [np.zeros([1] * axes) for _ in budget]
            for chunk in range(shape.chunks):
                position = shape.position(stage, chunk)
                for layer in range(boundaries[position], boundaries[position + 1]):
                    table, column = tables[layer][rank_class], [1] * axes
                    if layer in axis_of:
                        column[axis_of[layer]] = sizes[axis_of[layer]]
                    work = work + table.step_bound_s.reshape(column)
                    reductions = reductions + table.reductions_s.reshape(column)
                    microbatch = microbatch + table.microbatch_s.reshape(column)
                    for memory, bytes_ in enumerate(_live_bytes(table, in_flight[chunk])):
                        live[memory] = live[memory] + bytes_.reshape(column)
            overflows = [held > most for held, most in zip(live, budget, strict=True)]
            overflow = functools.reduce(np.logical_or, overflows)
            classes.append(StageWork(work, reductions, microbatch, overflow))
        step.add(classes)
    overflow, total = np.broadcast_to(step.overflow, sizes), np.broadcast_to(step.seconds, sizes)
    return np.where(overflow, np.inf, total).ravel()


def _live_bytes(table: OptionTable, in_flight: int) -> list[Floats]:
    """Certain bytes of options, of the device and then of each granted tier."""
    device_bytes = table.resident_bytes + in_flight * table.kept_bytes
    return [device_bytes, *table.tier_bytes_at(in_flight)]


class StageWork(NamedTuple):
    """Work of a stage's rank class, of many plans at once.

    ``work_s``: of all passes. ``reductions_s``: of it, what no other stage waits for.
    ``microbatch_s``: one micro-batch. ``overflow``: True where memory certainly overflows.
    """

    work_s: Floats
    reductions_s: Floats
    microbatch_s: Floats
    overflow: Bools


class StepBound:
    """Bounds of many plans' steps, stage after stage.

    Args:
        fills_and_drains: True if a stage waits for the earlier ones' first micro-batch.
    """

    def __init__(self, fills_and_drains: bool) -> None:
        self._fills_and_drains = fills_and_drains
        self._earlier_s: Floats = np.zeros(1)
        self.seconds: Floats = np.zeros(1)
        self.overflow: Bools = np.zeros(1, dtype=bool)

    def add(self, rank_classes: Sequence[StageWork]) -> None:
        """Add the next stage, of its rank classes."""
        ramp_s = self._earlier_s if self._fills_and_drains else 0.0
        microbatch_s: Floats = np.zeros(1)
        for work in rank_classes:
            late_s = work.work_s - work.reductions_s + ramp_s
            self.seconds = np.maximum(self.seconds, np.maximum(work.work_s, late_s))
            microbatch_s = np.maximum(microbatch_s, work.microbatch_s)
            self.overflow = self.overflow | work.overflow
        self._earlier_s = self._earlier_s + microbatch_s
