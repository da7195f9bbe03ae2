"""Layers of a pass in order: computation, copies, traffic and lanes of each."""

from __future__ import annotations

from typing import NamedTuple

from ...spec.cluster.cluster_spec import LevelName
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..memory.pass_memory import entry_unit
from ..pricing.costs import (
    KERNEL_TERMS,
    TECHNIQUE,
    TERM_NUMBER,
    PassCost,
    ReduceCost,
    UnitCost,
)
from ..pricing.overlap import slowed
from ..pricing.pricer import Pricer
from ..sharding.fsdp_unit import FsdpUnit
from ..symbolic.lane_work import Begins, Lane, LaneWorks
from ..symbolic.lowered_pass import LoweredPass
from ..technique_spans import LaneSpans
from .both_ways import with_both_ways


class LaneSlot(NamedTuple):
    """A technique's work beside a layer, undisturbed ``seconds`` long; see ``LaneWork``."""

    technique: str
    lane: Lane
    seconds: float
    begins: Begins
    lag: int

    def awaited_by(self, number: int) -> int | None:
        """The layer that waits for this work of layer ``number``; None: only the pass's end."""
        if self.begins in ("gather", "before"):
            return number
        return number + self.lag if self.lag else None


class LayerSlot(NamedTuple):
    """One layer's share of a pass: computation, copies, traffic before and after.

    ``fetched_s`` of the copies come from or go to the host, for the technique ``fetched_by``.
    ``hides_gather``: beside the layer before; ``hides_reduction``: beside the next one. ``lanes``:
    techniques' work beside it. ``exchange_s``: of experts' exchanges beside its kernels, over a
    link level of sharding traffic, with which they take turns. ``spans``: what its techniques show
    in a timeline.
    """

    cost: PassCost
    copy_s: float
    gather_s: float
    reduce_s: float
    fetched_by: str = ""
    fetched_s: float = 0.0
    hides_gather: bool = False
    hides_reduction: bool = False
    lanes: tuple[LaneSlot, ...] = ()
    exchange_s: float = 0.0
    spans: LaneSpans = ()

    def exchanging_s(self, slowdown: float) -> float:
        """Seconds of its exchanges on the wire, beside its kernels."""
        if not self.exchange_s:
            return 0.0
        kernels_s = sum(self.cost.terms_s[TERM_NUMBER[name]] for name in KERNEL_TERMS)
        return slowed(self.exchange_s, kernels_s, slowdown)

    @property
    def overlaps(self) -> bool:
        """True if traffic or a lane runs beside layers."""
        return self.hides_gather or self.hides_reduction or bool(self.lanes)

    @property
    def technique_s(self) -> tuple[tuple[str, float], ...]:
        """Seconds of techniques by name, of the computation and of the copies."""
        computation = self.cost.technique_s
        return (*computation, (self.fetched_by, self.fetched_s)) if self.fetched_s else computation


def layer_slots(
    chunk: StageChunk, numbers: list[int], kind: PassKind, pricer: Pricer
) -> list[LayerSlot]:
    """Layers of a pass in order; most equal the previous one."""
    slots: list[LayerSlot] = []
    previous_key = None
    for number in numbers:
        entry = chunk.layers[number]
        is_unique = entry.unit is None or number == len(chunk.layers) - 1  # may share a unit
        layer_key = None if is_unique else (id(entry.lowered), id(entry.unit))
        repeats = layer_key is not None and layer_key == previous_key
        slots.append(slots[-1] if repeats else _slot(chunk, number, kind, pricer))
        previous_key = layer_key
    slots = with_both_ways(slots, pricer.both_ways_slowdown)
    if not any(slot.cost.beside_pass_s for slot in slots):
        return slots
    return _with_exchanges(slots, chunk, numbers, kind, pricer)


def _with_exchanges(
    slots: list[LayerSlot], chunk: StageChunk, numbers: list[int], kind: PassKind, pricer: Pricer
) -> list[LayerSlot]:
    """Slots with the exchanges that share a link level with the chunk's sharding traffic."""
    units = (chunk.layers[number].unit for number in numbers)
    levels = frozenset[LevelName]().union(*(pricer.traffic_levels(u) for u in units if u))
    seconds: dict[tuple[int, ...], float] = {}
    exchanges = []
    for number, slot in zip(numbers, slots, strict=True):
        passes: tuple[LoweredPass, ...] = (chunk.layers[number].lowered.forward,)
        if not kind.forward:
            passes = chunk.backward_passes(number, kind.first, kind.last, kind.part)
        key = tuple(map(id, passes))
        if key not in seconds:
            seconds[key] = pricer.exchange_s(passes, levels)
        exchanges.append(slot._replace(exchange_s=seconds[key]))
    return exchanges


def _slot(chunk: StageChunk, number: int, kind: PassKind, pricer: Pricer) -> LayerSlot:
    make = _forward_slot if kind.forward else _backward_slot
    slot = make(chunk, number, kind, pricer)
    works = chunk.lanes(number, kind)
    return slot if not works else _beside(slot, works, pricer)


def _beside(slot: LayerSlot, works: LaneWorks, pricer: Pricer) -> LayerSlot:
    """A slot with techniques' work on lanes, or in line where the machine has none."""
    lanes, cost = [], slot.cost
    for work in works:
        seconds = pricer.lane_s(work)
        if pricer.in_line(work):
            terms = list(cost.terms_s)
            terms[TECHNIQUE] += seconds
            cost = cost._replace(
                time_s=cost.time_s + seconds,
                terms_s=tuple(terms),
                priced_s=cost.priced_s + seconds,
                technique_s=(*cost.technique_s, (work.technique, seconds)),
            )
        else:
            lanes.append(LaneSlot(work.technique, work.lane, seconds, work.begins, work.lag))
    return slot._replace(cost=cost, lanes=tuple(lanes))


def _forward_slot(chunk: StageChunk, number: int, kind: PassKind, pricer: Pricer) -> LayerSlot:
    entry, unit = chunk.layers[number], entry_unit(chunk, number)
    forward = pricer.layer_pass(entry.lowered.forward)
    if unit is None:
        return LayerSlot(forward, 0.0, 0.0, 0.0)
    cost = pricer.unit(unit)
    copy_s, gather_s = _before_forward_s(unit, cost, kind)
    fetched = unit.fetched_by, cost.gather.fetched_s
    return LayerSlot(forward, copy_s, gather_s, 0.0, *fetched, *_hides(unit, pricer))


def _hides(unit: FsdpUnit, pricer: Pricer) -> tuple[bool, bool]:
    return pricer.hides_gather(unit), pricer.hides_reduction(unit)


def _before_forward_s(unit: FsdpUnit, cost: UnitCost, kind: PassKind) -> tuple[float, float]:
    if not (unit.wrapped and (kind.first or unit.gathers_each_use)):
        return 0.0, 0.0
    gather, outer = cost.gather.forward, cost.gather.outer
    if not kind.first:
        return gather.kernels_s, gather.collectives_s
    return gather.kernels_s + outer.kernels_s, gather.collectives_s + outer.collectives_s


def traffic_seconds(unit: FsdpUnit, cost: UnitCost, kind: PassKind) -> tuple[float, float, float]:
    """Copies, gather and reduction added by a unit to a pass."""
    if kind.forward:
        return *_before_forward_s(unit, cost, kind), 0.0
    return _around_backward_s(unit, cost, kind)


def _backward_slot(chunk: StageChunk, number: int, kind: PassKind, pricer: Pricer) -> LayerSlot:
    unit = chunk.layers[number].unit
    backward = pricer.passes(chunk.backward_passes(number, kind.first, kind.last, kind.part))
    if unit is None:
        return LayerSlot(backward, 0.0, 0.0, 0.0)
    cost = pricer.unit(unit)
    fetched_s = _copied_s(unit, cost, kind)
    traffic_s, fetched = _around_backward_s(unit, cost, kind), (unit.fetched_by, fetched_s)
    return LayerSlot(backward, *traffic_s, *fetched, *_hides(unit, pricer))


def _copied_s(unit: FsdpUnit, cost: UnitCost, kind: PassKind) -> float:
    """Copies from and to the host around a backward pass."""
    copied_s = 0.0 if kind.part == "weight" else cost.gather.fetched_s
    if kind.part == "input" or not (kind.last or unit.reduces_each_micro_batch):
        return copied_s
    adds = unit.reduces_each_micro_batch and not kind.first
    return copied_s + cost.reduce.offloaded_s + (cost.reduce.fetched_s if adds else 0.0)


def _around_backward_s(
    unit: FsdpUnit, cost: UnitCost, kind: PassKind
) -> tuple[float, float, float]:
    """Copies, gather and reduction of a backward pass."""
    if not (unit.wrapped or unit.reduce.fresh):
        return 0.0, 0.0, 0.0
    gathers = unit.gathers_each_use and kind.part != "weight"
    copy_s = cost.gather.backward.kernels_s if gathers else 0.0
    gather_s = cost.gather.backward.collectives_s if gathers else 0.0
    if kind.part == "input":
        return copy_s, gather_s, 0.0
    reduces = kind.last or unit.reduces_each_micro_batch
    copy_s += _after_backward_s(cost.reduce, kind, reduces, unit.reduces_each_micro_batch)
    reduce_s = cost.reduce.fresh.collectives_s if reduces else 0.0
    if kind.last:
        outer = cost.reduce.outer
        return copy_s + outer.kernels_s, gather_s, reduce_s + outer.collectives_s
    return copy_s, gather_s, reduce_s


def _after_backward_s(
    cost: ReduceCost, kind: PassKind, reduces: bool, each_micro_batch: bool
) -> float:
    if not reduces:
        return cost.upcast_s if kind.first else cost.accumulate_upcast_s
    if each_micro_batch:
        return cost.fresh.kernels_s + (0.0 if kind.first else cost.accumulate_shard_s)
    if kind.first:
        return cost.fresh.kernels_s
    return cost.accumulate_upcast_s + cost.accumulated_kernels_s
