"""Random schedules of tensor programs, by TVM's schedule primitives.

Blocks are visited from the last to the first. A block is inlined, moved into its consumer, or its
loops are split by random divisors and reordered; the innermost spatial loop may be vectorized,
short inner loops unrolled. A primitive that TVM refuses is skipped. Loops are not fused: indices
stay affine. Same seed, same program.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from .workloads import tvm_module

INLINE_SHARE, COMPUTE_AT_SHARE, SPLIT_SHARE = 0.4, 0.35, 0.85
VECTORIZE_SHARE, UNROLL_SHARE = 0.65, 0.35
REDUCES = 2
"""TVM's number of reduction axes."""
MOST_LANES, MOST_UNROLLED = 64, 16


def scheduled(function: Any, seed: tuple[int, ...]) -> Any:
    """The ``PrimFunc`` of a random schedule of ``function``."""
    s_tir = tvm_module("s_tir")
    schedule = s_tir.Schedule(function, error_render_level="none")
    random = np.random.default_rng(seed)
    root = schedule.get_sblock("root")
    names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    for name in reversed(names):
        _block(schedule, s_tir.ScheduleError, name, random)
    return schedule.mod["main"]


def _block(schedule: Any, refused: type[Exception], name: str, random: np.random.Generator) -> None:
    draw = random.random(4)
    block = schedule.get_sblock(name)
    consumers = schedule.get_consumers(block)
    if consumers and draw[0] < INLINE_SHARE:
        with contextlib.suppress(refused):
            schedule.compute_inline(block)
            return
    if consumers and draw[1] < COMPUTE_AT_SHARE:
        loops = schedule.get_loops(consumers[0])
        with contextlib.suppress(refused):
            schedule.compute_at(block, loops[int(random.integers(len(loops)))])
    elif draw[2] < SPLIT_SHARE:
        _tile(schedule, refused, block, random)
    _annotate(schedule, refused, block, random)


def _tile(schedule: Any, refused: type[Exception], block: Any, random: np.random.Generator) -> None:
    outer, inner, reduced = [], [], set(_reductions(schedule, block))
    for number, loop in enumerate(schedule.get_loops(block)):
        factor = _divisor(int(schedule.get(loop).extent), random)
        first, second = schedule.split(loop, [None, factor])
        outer.append((number in reduced, first))
        inner.append((number in reduced, second))
    if random.random() < 0.3:
        random.shuffle(outer)
    else:
        outer.sort(key=lambda entry: entry[0])
    random.shuffle(inner)
    with contextlib.suppress(refused):
        schedule.reorder(*(loop for _, loop in (*outer, *inner)))


def _reductions(schedule: Any, block: Any) -> list[int]:
    return [
        n for n, axis in enumerate(schedule.get(block).iter_vars) if int(axis.iter_type) == REDUCES
    ]


def _annotate(
    schedule: Any, refused: type[Exception], block: Any, random: np.random.Generator
) -> None:
    loops = schedule.get_loops(block)
    if not loops:
        return
    if random.random() < VECTORIZE_SHARE:
        _move_spatial_inward(schedule, refused, block)
        loops = schedule.get_loops(block)
        if int(schedule.get(loops[-1]).extent) > MOST_LANES:
            loops = [*loops[:-1], *_split_lanes(schedule, loops[-1], random)]
        with contextlib.suppress(refused):
            schedule.vectorize(loops[-1])
            loops = loops[:-1]
    unrolls = random.random() < UNROLL_SHARE
    if loops and unrolls and int(schedule.get(loops[-1]).extent) <= MOST_UNROLLED:
        schedule.unroll(loops[-1])


def _split_lanes(schedule: Any, loop: Any, random: np.random.Generator) -> list[Any]:
    extent = int(schedule.get(loop).extent)
    fits = [lanes for lanes in (4, 8, 16, 32, 64) if extent % lanes == 0]
    return list(schedule.split(loop, [None, int(random.choice(fits))])) if fits else [loop]


def _move_spatial_inward(schedule: Any, refused: type[Exception], block: Any) -> None:
    """Put the last spatial loop innermost."""
    loops = schedule.get_loops(block)
    reduced = {
        str(axis.var.name).removeprefix("v_")
        for axis in schedule.get(block).iter_vars
        if int(axis.iter_type) == REDUCES
    }
    names = [str(schedule.get(loop).loop_var.name).split("_")[0] for loop in loops]
    spatial = [number for number, name in enumerate(names) if name not in reduced]
    if not spatial or spatial[-1] == len(loops) - 1:
        return
    last = loops.pop(spatial[-1])
    with contextlib.suppress(refused):
        schedule.reorder(*loops, last)


def _divisor(extent: int, random: np.random.Generator) -> int:
    divisors = [d for d in range(1, min(extent, 64) + 1) if extent % d == 0]
    return int(random.choice(divisors))
