"""Seconds of a nest on multiprocessors: tiles in waves, steps inside a tile, memory beside it.

    T = launches · launch + slower + loss · faster   of
    T_math = max(1, tiles / SMs) · (prologue + Σ leaves steps · (tile FLOPs / rate of an SM + step))
    T_memory = bytes / bandwidth

Prologue and step are in clock cycles: what attention takes beyond its FLOPs scales with the clock
from A100 (7,230 ns a tile) to GB300 (4,320 ns), but not on L40S, whose own fit has none. They are
fitted to the timed rows of the devices that are known (:mod:`fitting.tile_constants`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.catalogue.device import Device
from ..arrays import Floats
from ..kernel_latency.roofline import peak_flops_per_s
from .leaf_features import footprint
from .nest import Leaf, Program

LARGEST_TILE = 128
"""Rows of a tile that a matrix instruction computes, used or not."""


class TileConstants(NamedTuple):
    """Constants of the formula, all positive; cycles of the boost clock."""

    prologue_cycles: float = 12e3
    step_cycles: float = 250.0
    math_share: float = 0.75
    memory_share: float = 1.0
    overlap_loss: float = 0.3
    launches: float = 1.0


class TileWork(NamedTuple):
    """Work of programs as columns: tiles, steps in one, FLOPs in one, bytes beyond the chip."""

    tiles: Floats
    steps: Floats
    tile_flops: Floats
    traffic_bytes: Floats


class DeviceRates(NamedTuple):
    """Rates of the device of each row."""

    units: Floats
    clock_hz: Floats
    flops_per_s: Floats
    bytes_per_s: Floats
    launch_s: Floats
    l2_bytes: Floats


def tile_work(programs: Sequence[Program]) -> TileWork:
    """Work of programs, one row each."""
    rows = np.array([_row(program) for program in programs], dtype=np.float64).reshape(-1, 4)
    return TileWork(*rows.T)


def rates(devices: Sequence[Device], dtype: str) -> DeviceRates:
    """Rates of devices, one row each."""
    rows = [
        (
            float(on.sm_count),
            on.boost_clock_hz,
            peak_flops_per_s(on, dtype) * on.matmul_ceiling,
            on.memory_bandwidth_bytes_per_s * on.memory_ceiling,
            on.kernel_launch_s,
            float(on.l2_bytes),
        )
        for on in devices
    ]
    return DeviceRates(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)


def tiled_seconds(work: TileWork, on: DeviceRates, constants: TileConstants) -> Floats:
    """Seconds of each row of ``work`` on the device of that row."""
    math_s, memory_s = tile_parts(work, on, constants)
    slower, faster = np.maximum(math_s, memory_s), np.minimum(math_s, memory_s)
    total: Floats = on.launch_s * constants.launches + slower + constants.overlap_loss * faster
    return total


def tile_parts(work: TileWork, on: DeviceRates, constants: TileConstants) -> tuple[Floats, Floats]:
    """Seconds of arithmetic and of memory alone."""
    flops_s = work.tile_flops * on.units / (on.flops_per_s * constants.math_share)
    cycles = constants.prologue_cycles + work.steps * constants.step_cycles
    waves = np.maximum(1.0, work.tiles / on.units)
    memory_s = work.traffic_bytes / (on.bytes_per_s * constants.memory_share)
    return waves * (flops_s + cycles / on.clock_hz), memory_s


def on_device(work: TileWork, on: DeviceRates, constants: TileConstants) -> NDArray[np.float32]:
    """Features of programs on devices: float32 (rows, 9), near one."""
    math_s, memory_s = tile_parts(work, on, constants)
    total_s, waves = tiled_seconds(work, on, constants), work.tiles / on.units
    columns = (
        np.log(waves),
        waves / np.ceil(waves),
        np.log(math_s / memory_s),
        np.log(total_s / on.launch_s),
        np.log(total_s / 1e-4),
        np.log(work.traffic_bytes / on.l2_bytes),
        np.log(work.tile_flops / work.steps),
        np.log(work.steps),
        np.log(work.tile_flops * on.units / on.flops_per_s * on.clock_hz),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _row(program: Program) -> tuple[float, float, float, float]:
    first = program.leaves[0]
    tiles = math.prod(loop.extent for loop in first.loops if loop.kind == "parallel")
    steps = sum(_steps(leaf) for leaf in program.leaves)
    flops = sum(_steps(leaf) * _step_flops(leaf) for leaf in program.leaves)
    moved = sum(
        footprint(access, leaf.loops) for leaf in program.leaves for access in leaf.accesses
    )
    return float(tiles), float(max(1, steps)), float(max(1, flops)), float(max(1.0, moved))


def _is_tensor(leaf: Leaf) -> bool:
    return any(loop.kind == "tensor" for loop in leaf.loops)


def _steps(leaf: Leaf) -> int:
    """Matrix instructions' groups one after another in a tile."""
    return math.prod(x.extent for x in leaf.loops if x.kind == "serial") if _is_tensor(leaf) else 0


def _step_flops(leaf: Leaf) -> int:
    """FLOPs of a step, rows of the tile padded to the instruction's."""
    sides = [loop.extent for loop in leaf.loops if loop.kind == "tensor"]
    return 2 * math.prod([max(LARGEST_TILE, sides[0]), *sides[1:]]) if sides else 0
