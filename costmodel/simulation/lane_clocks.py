"""Clocks of a pass's lanes, beside its layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..pricing.overlap import slowed
from ..symbolic.lane_work import Begins, Lane
from .both_ways import HOST_COPIES
from .layer_slots import LaneSlot


class PlacedLaneWork(NamedTuple):
    """Work on a lane: its layer's number, start and seconds."""

    work: LaneSlot
    number: int
    start_s: float
    seconds: float


class LaneClocks:
    """When lanes are free, and when layers may begin.

    ``wire_free``: the clock of sharding traffic, which the wire's work shares. ``gates``: moments
    before which layers do not begin, ``gather_gates`` their gathers. ``last_end``: of all work so
    far.
    """

    def __init__(self, lanes: Sequence[tuple[LaneSlot, ...]], slowdown: float) -> None:
        self._lanes, self._slowdown = lanes, slowdown
        self._free: dict[str, float] = defaultdict(float)
        self.any = any(lanes)
        self.wire_free = self.last_end = 0.0
        self.gates, self.gather_gates = [0.0] * len(lanes), [0.0] * len(lanes)
        self.placed: list[PlacedLaneWork] = []

    def beside_s(self, number: int) -> float:
        """Seconds of lanes that share the device with a layer."""
        return beside_seconds(self._lanes, number) if self.any else 0.0

    def issue(self, number: int, begins: Begins, moment_s: float, work_s: float) -> None:
        """Place a layer's work of one kind, in order.

        Args:
            number: of the layer; beyond the last one there is none.
            begins: which of its works.
            moment_s: when they may begin.
            work_s: computation that shares the device with them.
        """
        if not self.any or number >= len(self._lanes):
            return
        for work in self._lanes[number]:
            if work.begins == begins:
                self._place(work, number, moment_s, slowed(work.seconds, work_s, self._slowdown))

    def _place(self, work: LaneSlot, number: int, moment_s: float, seconds: float) -> None:
        on_wire = work.lane == "wire"
        start_s = max(moment_s, self.wire_free if on_wire else self._free[work.lane])
        end_s = start_s + seconds
        if on_wire:
            self.wire_free = end_s
        self._free[work.lane] = end_s
        self.last_end = max(self.last_end, end_s)
        awaited = work.awaited_by(number)
        if awaited is not None and awaited < len(self.gates):
            self.gates[awaited] = max(self.gates[awaited], end_s)
        if work.begins == "gather":
            self.gather_gates[number] = max(self.gather_gates[number], end_s)
        self.placed.append(PlacedLaneWork(work, number, start_s, seconds))


def beside_seconds(lanes: Sequence[tuple[LaneSlot, ...]], number: int) -> float:
    """Seconds of the layers' lanes that share the device with layer ``number``."""
    seconds = _seconds(lanes[number], ("with",))
    if number:
        seconds += _seconds(lanes[number - 1], ("after", "reduced"))
    if number + 1 < len(lanes):
        seconds += _seconds(lanes[number + 1], ("gather", "before"))
    return seconds


def _seconds(lanes: tuple[LaneSlot, ...], begins: tuple[Begins, ...]) -> float:
    return sum(work.seconds for work in lanes if work.begins in begins)


class ChainedLaneWork(NamedTuple):
    """Work of a chain on a lane, from the common start of all."""

    technique: str
    lane: Lane
    start_s: float
    seconds: float


def placed_chains(
    chains: Sequence[Sequence[tuple[str, Lane, float]]], both_ways: float = 1.0
) -> tuple[ChainedLaneWork, ...]:
    """Units' chains of work (technique, lane, seconds) from a common start.

    In a chain each piece follows the one before it, and on its lane those of earlier chains. Copies
    to and from the host that coexist are longer by the factor ``both_ways``, each direction by what
    of it coexisted when they were not, spread over its copies.
    """
    placed = _placed(chains)
    joint_s = _coexisting_s(placed) if both_ways > 1.0 else 0.0
    if not joint_s:
        return placed
    factors: dict[Lane, float] = {}
    for lane in HOST_COPIES:
        alone_s = sum(work.seconds for work in placed if work.lane == lane)
        factors[lane] = 1.0 + (both_ways - 1.0) * joint_s / alone_s
    return _placed(
        [[(name, lane, s * factors.get(lane, 1.0)) for name, lane, s in chain] for chain in chains]
    )


def _coexisting_s(placed: tuple[ChainedLaneWork, ...]) -> float:
    """Seconds in which copies to the host and copies from it both run."""
    down, up = ([work for work in placed if work.lane == lane] for lane in HOST_COPIES)
    total_s, first = 0.0, 0
    for one in down:
        end_s = one.start_s + one.seconds
        while first < len(up) and up[first].start_s + up[first].seconds <= one.start_s:
            first += 1
        for other in up[first:]:
            if other.start_s >= end_s:
                break
            other_end_s = other.start_s + other.seconds
            total_s += min(end_s, other_end_s) - max(one.start_s, other.start_s)
    return total_s


def _placed(chains: Iterable[Iterable[tuple[str, Lane, float]]]) -> tuple[ChainedLaneWork, ...]:
    free: dict[Lane, float] = defaultdict(float)
    placed = []
    for chain in chains:
        clock_s = 0.0
        for technique, lane, seconds in chain:
            start_s = max(clock_s, free[lane])
            clock_s = free[lane] = start_s + seconds
            placed.append(ChainedLaneWork(technique, lane, start_s, seconds))
    return tuple(placed)
