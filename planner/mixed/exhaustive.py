"""Every plan of a small shape over several device groups, in the order of its proven bound.

As :mod:`..exhaustive`, with options, prices and memory of each stage's own device groups; of a
stage of several, each alone is a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..candidates import Decision
from ..options import Floats
from ..shape import Shape
from .options import Tables

StageTables = Sequence[Tables | None]
"""Tables of every layer on one stage."""


def plan_count(shape: Shape, tables: Sequence[StageTables]) -> int:
    """How many plans a shape has: over all cuts, the product of its layers' options.

    Args:
        shape: the pipeline shape.
        tables: of every layer on every stage.
    """
    layers = len(tables[0])
    stage_of = _stages(shape)
    ways = [1, *[0] * layers]
    for position in range(shape.positions):
        held = tables[stage_of[position]]
        following = [0] * (layers + 1)
        for start in range(layers):
            product = ways[start]
            for stop in range(start, layers):
                if not product:
                    break
                options = held[stop]
                product *= len(options[0].strategies) if options is not None else 0
                following[stop + 1] += product
        ways = following
    return ways[layers]


def _stages(shape: Shape) -> list[int]:
    """The stage of every position."""
    found = [0] * shape.positions
    for stage in range(shape.stages):
        for chunk in range(shape.chunks):
            found[shape.position(stage, chunk)] = stage
    return found


def bounded_plans(
    shape: Shape,
    cuts: tuple[int, ...],
    tables: Sequence[StageTables],
    budgets: Sequence[Sequence[float]],
    limit_s: float,
) -> Iterator[tuple[float, Decision]]:
    """Plans with these cuts whose bound is below ``limit_s``, by growing bound.

    Args:
        shape: the pipeline shape.
        cuts: cut points of its chunks.
        tables: of every layer on every stage.
        budgets: live bytes that certainly fit, by stage and class of ranks.
        limit_s: bounds from here on are not wanted.
    """
    stage_of, chosen = _stages(shape), []
    for position in range(shape.positions):
        for layer in range(cuts[position], cuts[position + 1]):
            own = tables[stage_of[position]][layer]
            if own is None:
                return
            chosen.append(own)
    sizes = [len(own[0].strategies) for own in chosen]
    bound = _bounds(shape, cuts, chosen, budgets, sizes)
    wanted = np.flatnonzero(bound < limit_s)
    order = wanted[np.argsort(bound[wanted], kind="stable")]
    for flat in order.tolist():
        rows = np.unravel_index(flat, sizes)
        strategies = tuple(own[0].strategies[int(i)] for own, i in zip(chosen, rows, strict=True))
        yield float(bound[flat]), Decision(shape, cuts, strategies)


def _bounds(
    shape: Shape,
    cuts: tuple[int, ...],
    chosen: list[Tables],
    budgets: Sequence[Sequence[float]],
    sizes: list[int],
) -> Floats:
    """Bound of every combination, flattened; infinite where memory certainly overflows."""
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
                for layer in range(cuts[position], cuts[position + 1]):
                    table, column = chosen[layer][number], [1] * axes
                    column[layer] = sizes[layer]
                    work = work + table.step_bound_s.reshape(column)
                    middle = middle + table.middle_s.reshape(column)
                    bytes_ = table.resident_bytes + held[chunk] * table.kept_bytes
                    live = live + bytes_.reshape(column)
            total = np.maximum(total, work + ramp)
            passes = np.maximum(passes, middle)
            overflow = overflow | (live > budget)
        earlier = earlier + passes
    bound = np.where(np.broadcast_to(overflow, sizes), np.inf, np.broadcast_to(total, sizes))
    return bound.ravel()
