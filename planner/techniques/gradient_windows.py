"""Bytes of gradients for windows: by dynamic programming over a whole plan's layers.

Sums in windows are free in the bounds of a search, so one with them is never left early; unasked it
would double the time of every question about experts. Where a pin says ``auto``, layers are
searched with windows that take all that waits. On the plan found, bytes of each stage's windows are
chosen, last layer first: what a window takes longer for them against what the sums take outside.
Layers are then searched once more under those bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...costmodel.lowering.chunk import StageChunk
from ...costmodel.lowering.waiting_sums import finished_unit
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.symbolic.lowered_pass import NO_PASS
from ...spec.report.work_items import Collective
from ...spec.techniques.gradient_windows import NAME, GradientWindows, LayerWindows
from ..technique import FoundPlan, TechniqueChoice

UNTRIED = "a search with it has looser bounds, so it is taken only where it is pinned"
GRAINS = 96
"""Equal parts of a stage's sums: the steps in which windows are filled."""
KIB = 1024
ROUNDING = 1e-12


class BackwardLayer(NamedTuple):
    """A layer of a backward, in grains of sums.

    ``window_s``: seconds that 0, 1, … grains add in its window; empty: it has none. ``joins``:
    grains that wait once it is done. ``outside_s``: seconds of 0, 1, … grains if all that wait are
    summed then; empty: they go on waiting.
    """

    window_s: tuple[float, ...] = ()
    joins: int = 0
    outside_s: tuple[float, ...] = ()


def filled_windows(layers: Sequence[BackwardLayer]) -> tuple[float, tuple[int, ...]]:
    """Least seconds of all sums, and the grains that each layer's window takes.

    Where several fill alike, windows take more: what is cut is copied.

    Args:
        layers: in the order of the backward.
    """
    states: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for layer in layers:
        after: dict[int, tuple[float, tuple[int, ...]]] = {}
        for waiting, (seconds, taken) in states.items():
            for grains in reversed(range(waiting + 1 if layer.window_s else 1)):
                cost_s = seconds + (layer.window_s[grains] if layer.window_s else 0.0)
                left = waiting - grains + layer.joins
                if layer.outside_s:
                    cost_s, left = cost_s + layer.outside_s[left], 0
                if left not in after or cost_s < after[left][0] * (1 - ROUNDING):
                    after[left] = cost_s, (*taken, grains)
        states = after
    return min(states.values())


def improved(found: FoundPlan) -> Iterable[GradientWindows]:
    """Bytes for the windows of a plan that was found with windows that take all."""
    limits: dict[int, int] = {}
    used = sum(stage.device_count for stage in found.plan.program.stages)
    for stage, chunks in zip(found.plan.program.stages, found.simulation.chunks, strict=True):
        machine, ranks = found.simulator.pricer.machine, stage.device_count
        span = machine.link_span_of(ranks, used)
        for chunk in chunks:
            limits |= _chunk_limits(chunk, found.simulator.pricer.with_link_span(span))
    return (GradientWindows(layers=_runs(limits)),) if limits else ()


def _chunk_limits(chunk: StageChunk, pricer: Pricer) -> dict[int, int]:
    """Bytes of the windows that are to leave some of what waits."""
    sums = [item for n in range(len(chunk.layers)) for item in _joining(chunk, n)]
    if not sums:
        return {}
    total = sum(item.payload_bytes for item in sums)
    grain = max(KIB, -(-total // (GRAINS * KIB)) * KIB)
    layers = _grained(chunk, pricer, grain, round(total / grain), pricer.sums_s(sums))
    _, taken = filled_windows(layers)
    limits, waiting = {}, 0
    for layer, grains, entry in zip(layers, taken, reversed(chunk.layers), strict=True):
        if layer.window_s and grains < waiting:
            limits[entry.index] = grains * grain
        waiting = 0 if layer.outside_s else waiting - grains + layer.joins
    return limits


def _joining(chunk: StageChunk, number: int) -> tuple[Collective, ...]:
    unit = finished_unit(chunk, number)
    return () if unit is None or unit.waiting is None else unit.waiting.items


def _grained(
    chunk: StageChunk, pricer: Pricer, grain: int, most: int, all_s: float
) -> list[BackwardLayer]:
    """Layers in the order of the backward; each of ``most`` grains has its part of ``all_s``."""
    windows: dict[int, tuple[float, ...]] = {}
    joined, grains, layers = 0, 0, list[BackwardLayer]()
    seconds = [all_s * n / most for n in range(most + 1)]
    for number in reversed(range(len(chunk.layers))):
        entry, own = chunk.layers[number], _joining(chunk, number)
        joined += sum(item.payload_bytes for item in own)
        joins, grains = round(joined / grain) - grains, round(joined / grain)
        outside: tuple[float, ...] = ()
        if number == 0 or (own and chunk.layers[number - 1].window_bytes is None):
            hides = number > 0 and entry.unit is not None and pricer.hides_reduction(entry.unit)
            beside = chunk.backward(number - 1, False) if hides else NO_PASS
            hidden_s = pricer.layer_pass(beside).time_s if hides else 0.0
            outside = tuple(max(0.0, s - hidden_s) for s in seconds)
        window: tuple[float, ...] = ()
        if entry.window_bytes is not None:
            key = id(entry.lowered)
            if key not in windows:
                lowered = chunk.backward(number, False)
                windows[key] = tuple(pricer.window_s(lowered, s) for s in seconds)
            window = windows[key]
        layers.append(BackwardLayer(window, joins, outside))
    return layers


def _runs(limits: dict[int, int]) -> tuple[LayerWindows, ...]:
    """Limits of layers in order, neighbors of equal ones together."""
    runs: list[LayerWindows] = []
    for layer, most in sorted(limits.items()):
        if runs and runs[-1].last == layer - 1 and runs[-1].most_bytes == most:
            runs[-1] = LayerWindows(first=runs[-1].first, last=layer, most_bytes=most)
        else:
            runs.append(LayerWindows(first=layer, last=layer, most_bytes=most))
    return tuple(runs)


TECHNIQUE = TechniqueChoice(
    name=NAME, untried=UNTRIED, open_value=GradientWindows(), improved=improved
)
