"""Every plan of a small shape, in the order of its proven bound.

For given cuts the bound of a plan is ``max over stages of (its layers' step bounds + the
earlier stages' least micro-batch)``; plans whose certain bytes exceed a device are cut. Bounds
of all combinations are summed as arrays, one axis a layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..candidates.evaluator import Decision
from ..space.search_space import PipelineShape
from ..tables.arrays import Floats
from ..tables.option_table import OptionTable


def boundary_count(layers: int, shape: PipelineShape) -> int:
    """How many ways there are to cut the layers into the chunks of a shape."""
    return math.comb(layers - 1, shape.positions - 1)


def all_boundaries(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut ``layers`` into ``chunks`` non-empty runs, as cut points."""
    for inner in itertools.combinations(range(1, layers), chunks - 1):
        yield (0, *inner, layers)


def bounded_plans(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[OptionTable],
    live_budget_bytes: float,
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """Plans with these cuts whose bound is below ``limit_s``, by growing bound.

    Args:
        shape: the pipeline shape.
        boundaries: cut points of its chunks.
        tables: options of every layer, in order.
        live_budget_bytes: live bytes that certainly fit a device.
        limit_s: bounds from here on are not wanted.
    """
    every = [(table,) for table in tables]
    budgets = [(live_budget_bytes,)] * shape.stages
    yield from bounded_rank_class_plans(shape, boundaries, every, budgets, limit_s)


def bounded_rank_class_plans(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[Sequence[OptionTable]],
    budgets: Sequence[Sequence[float]],
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """As :func:`bounded_plans` where a stage's ranks are of several classes: each is a bound.

    Args:
        shape: the pipeline shape.
        boundaries: cut points of its chunks.
        tables: options of every layer, in order, as each class of its stage prices them.
        budgets: live bytes that certainly fit, by stage and class of ranks.
        limit_s: bounds from here on are not wanted.
    """
    sizes = [len(own[0].strategies) for own in tables]
    open_ones = [number for number, size in enumerate(sizes) if size != 1] or [0]
    bound = _bounds(shape, boundaries, tables, budgets, open_ones)
    wanted = np.flatnonzero(bound < limit_s)
    order = wanted[np.argsort(bound[wanted], kind="stable")]
    for flat in order.tolist():
        found = np.unravel_index(flat, [sizes[number] for number in open_ones])
        places = {number: int(place) for number, place in zip(open_ones, found, strict=True)}
        strategies = tuple(own[0].strategies[places.get(n, 0)] for n, own in enumerate(tables))
        yield float(bound[flat]), Decision(shape, boundaries, strategies)


def _bounds(
    shape: PipelineShape,
    boundaries: tuple[int, ...],
    tables: Sequence[Sequence[OptionTable]],
    budgets: Sequence[Sequence[float]],
    open_ones: list[int],
) -> Floats:
    """Bound of every combination, flattened; infinite where memory certainly overflows.

    Only layers with several options (``open_ones``) have an axis: an array has 64 at most.
    """
    sizes = [len(tables[number][0].strategies) for number in open_ones]
    axis_of = {number: axis for axis, number in enumerate(open_ones)}
    axes = len(sizes)
    earlier: Floats = np.zeros([1] * axes)
    total: Floats = np.zeros([1] * axes)
    overflow = np.zeros([1] * axes, dtype=bool)
    for stage in range(shape.stages):
        held = shape.first_in_flight(stage)
        ramp = earlier if shape.fills_and_drains else 0.0
        passes: Floats = np.zeros([1] * axes)
        for number, budget in enumerate(budgets[stage]):
            work, middle, live = (np.zeros([1] * axes) for _ in range(3))
            for chunk in range(shape.chunks):
                position = shape.position(stage, chunk)
                for layer in range(boundaries[position], boundaries[position + 1]):
                    table, column = tables[layer][number], [1] * axes
                    if layer in axis_of:
                        column[axis_of[layer]] = sizes[axis_of[layer]]
                    work = work + table.step_bound_s.reshape(column)
                    middle = middle + table.microbatch_s.reshape(column)
                    bytes_ = table.resident_bytes + held[chunk] * table.kept_bytes
                    live = live + bytes_.reshape(column)
            total = np.maximum(total, work + ramp)
            passes = np.maximum(passes, middle)
            overflow = overflow | (live > budget)
        earlier = earlier + passes
    bound = np.where(np.broadcast_to(overflow, sizes), np.inf, np.broadcast_to(total, sizes))
    return bound.ravel()
