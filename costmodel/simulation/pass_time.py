"""Seconds of one micro-batch through a chunk, with gathers and reductions.

Layers compute one after another; sharding traffic has its own stream where the stack overlaps it.
Forward, the next unit's gather is issued when a layer starts; backward, the previous layer's gather
is issued when a layer starts and the reduction when it ends; traffic runs in issue order. A layer
starts when the previous one is done and its parameters are gathered; a pass ends when everything
has. Its output is ready once the layers' own work is done: the reductions after that are its tail.
Without overlap everything is serial. Times never decrease when any duration grows, which makes
bounds provable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..memory.pass_memory import entry_unit
from ..pricing.costs import NO_SERIAL, TECHNIQUE, TERMS, PassCost, ReduceCost, UnitCost
from ..pricing.overlap import slowed
from ..pricing.pricer import Pricer
from ..sharding.fsdp_unit import FsdpUnit

PASS_TERMS = (*TERMS, "exposed_dp")
ELEMENTWISE, EXPOSED_DP = PASS_TERMS.index("elementwise"), PASS_TERMS.index("exposed_dp")


class PassSegment(NamedTuple):
    """A piece of a pass on one stream, from its start, for timelines."""

    stream: str
    name: str
    start_s: float
    duration_s: float
    term: str


@dataclass(slots=True)
class PassTime:
    """Seconds of a pass, by term; ``segments`` only on request.

    ``technique_s`` is the term of techniques by name, ``serial_s`` the communication of
    ``SERIAL_TERMS`` that runs beside nothing. ``tail_s`` of ``time_s`` follow the work of
    all layers: reductions, for which no message to another stage waits.
    """

    time_s: float
    terms_s: list[float]
    priced_s: float
    measured_s: float
    learned_s: float = 0.0
    segments: list[PassSegment] = field(default_factory=list)
    technique_s: dict[str, float] = field(default_factory=dict)
    tail_s: float = 0.0
    serial_s: tuple[float, ...] = NO_SERIAL


def sum_by_name(*named_seconds: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Sum seconds by name."""
    total: dict[str, float] = {}
    for name, seconds in chain(*named_seconds):
        total[name] = total.get(name, 0.0) + seconds
    return total


def terms_with_techniques(time: PassTime) -> list[tuple[str, float]]:
    """Seconds of a pass by term, techniques under their names."""
    terms = [*zip(PASS_TERMS, time.terms_s, strict=True)]
    terms[TECHNIQUE : TECHNIQUE + 1] = time.technique_s.items()
    return terms


class LayerSlot(NamedTuple):
    """One layer's share of a pass: computation, copies, traffic before and after.

    ``fetched_s`` of the copies come from or go to the host, for the technique ``fetched_by``.
    ``hides_gather``: beside the layer before; ``hides_reduction``: beside the next one.
    """

    cost: PassCost
    copy_s: float
    gather_s: float
    reduce_s: float
    fetched_by: str = ""
    fetched_s: float = 0.0
    hides_gather: bool = False
    hides_reduction: bool = False

    @property
    def technique_s(self) -> tuple[tuple[str, float], ...]:
        """Seconds of techniques by name, of the computation and of the copies."""
        computation = self.cost.technique_s
        return (*computation, (self.fetched_by, self.fetched_s)) if self.fetched_s else computation


def pass_time(chunk: StageChunk, kind: PassKind, pricer: Pricer, detail: bool = False) -> PassTime:
    """Seconds of a pass of ``chunk``.

    In a split backward, the input gradient gathers and the weight gradient reduces.

    Args:
        chunk: its lowered layers.
        kind: direction, and whether it is the chunk's first or last micro-batch.
        pricer: prices of the machine and stack.
        detail: also list the segments.
    """
    numbers = layer_order(chunk, kind)
    slots = layer_slots(chunk, numbers, kind, pricer)
    names = _names(chunk, numbers, kind) if detail else []
    if not (pricer.hides_sharding or any(s.hides_gather or s.hides_reduction for s in slots)):
        return _serial(slots, names)
    return _overlapped(slots, pricer, names)


def layer_order(chunk: StageChunk, kind: PassKind) -> list[int]:
    """Layer numbers of a chunk in a pass's order."""
    numbers = range(len(chunk.layers))
    return list(numbers if kind.forward else reversed(numbers))


def _names(chunk: StageChunk, numbers: list[int], kind: PassKind) -> list[str]:
    letter = "F" if kind.forward else "W" if kind.part == "weight" else "B"
    return [f"layer {chunk.layers[number].index} {letter}" for number in numbers]


def layer_slots(
    chunk: StageChunk, numbers: list[int], kind: PassKind, pricer: Pricer
) -> list[LayerSlot]:
    """Layers of a pass in order; most equal the previous one."""
    make = _forward_slot if kind.forward else _backward_slot
    slots: list[LayerSlot] = []
    previous_key = None
    for number in numbers:
        entry = chunk.layers[number]
        is_unique = entry.unit is None or number == len(chunk.layers) - 1  # may share a unit
        layer_key = None if is_unique else (id(entry.lowered), id(entry.unit))
        repeats = layer_key is not None and layer_key == previous_key
        slots.append(slots[-1] if repeats else make(chunk, number, kind, pricer))
        previous_key = layer_key
    return slots


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


def _summed(slots: list[LayerSlot]) -> PassTime:
    """Terms of all layers and their copies, without traffic and total time."""
    terms = [0.0] * len(PASS_TERMS)
    priced_s = measured_s = learned_s = 0.0
    for slot in slots:
        for number, seconds in enumerate(slot.cost.terms_s):
            terms[number] += seconds
        terms[ELEMENTWISE] += slot.copy_s - slot.fetched_s
        terms[TECHNIQUE] += slot.fetched_s
        priced_s += slot.cost.priced_s
        measured_s += slot.cost.measured_s
        learned_s += slot.cost.learned_s
    technique_s = sum_by_name(*(slot.technique_s for slot in slots if slot.technique_s))
    serial_s = tuple(map(sum, zip(*(slot.cost.serial_s for slot in slots), strict=True)))
    named = {"technique_s": technique_s, "serial_s": serial_s}
    return PassTime(0.0, terms, priced_s, measured_s, learned_s, **named)


def _serial(slots: list[LayerSlot], names: list[str]) -> PassTime:
    total = _summed(slots)
    total.terms_s[EXPOSED_DP] = sum(slot.gather_s + slot.reduce_s for slot in slots)
    total.time_s = sum(total.terms_s)
    total.tail_s = slots[-1].reduce_s
    clock_s = 0.0
    for name, slot in zip(names, slots, strict=False):
        clock_s = _add_collective(total.segments, f"{name} gather", clock_s, slot.gather_s)
        clock_s = _add_compute(total.segments, name, slot, clock_s, 1.0)
        clock_s = _add_collective(total.segments, f"{name} reduce", clock_s, slot.reduce_s)
    return total


def _overlapped(slots: list[LayerSlot], pricer: Pricer, names: list[str]) -> PassTime:
    """Two streams with prefetch of one layer; see the module docstring.

    A gather or reduction that is not hidden stops the computation.
    """
    slowdown = pricer.stack.overlap_slowdown
    total = _summed(slots)
    terms, segments = total.terms_s, total.segments
    compute_free = output_ready = pending_reduce_s = 0.0
    gathered = wire_free = slots[0].gather_s
    if names:
        _add_collective(segments, f"{names[0]} gather", 0.0, wire_free)
    for number, (slot, following) in enumerate(zip(slots, [*slots[1:], None], strict=True)):
        work_s = slot.cost.time_s + slot.copy_s
        gather_s = following.gather_s if following is not None else 0.0
        prefetches = following is not None and following.hides_gather
        prefetch_s = gather_s if prefetches else 0.0
        start = max(compute_free, gathered)
        busy_s = slowed(work_s, prefetch_s + pending_reduce_s, slowdown)
        if names:
            _add_compute(segments, names[number], slot, start, busy_s / work_s if work_s else 1.0)
        compute_free = output_ready = start + busy_s
        if following is not None and gather_s:
            issued = max(wire_free, start if prefetches else compute_free)
            duration_s = slowed(gather_s, work_s, slowdown) if prefetches else gather_s
            gathered = wire_free = issued + duration_s
            if names:
                _add_collective(segments, f"{names[number + 1]} gather", issued, duration_s)
        if slot.reduce_s:
            overlaps_next = following is not None and slot.hides_reduction
            next_compute_s = (
                following.cost.time_s if following is not None and overlaps_next else 0.0
            )
            issued = max(wire_free, compute_free)
            duration_s = slowed(slot.reduce_s, next_compute_s, slowdown)
            wire_free = issued + duration_s
            if names:
                _add_collective(segments, f"{names[number]} reduce", issued, duration_s)
            compute_free = compute_free if slot.hides_reduction else wire_free
        pending_reduce_s = slot.reduce_s if slot.hides_reduction else 0.0
    total.time_s = max(compute_free, wire_free)
    total.tail_s = total.time_s - output_ready
    terms[EXPOSED_DP] = max(0.0, total.time_s - sum(terms))  # rounding may leave -1e-17
    return total


def _add_collective(
    segments: list[PassSegment], name: str, start_s: float, duration_s: float
) -> float:
    if duration_s:
        segments.append(PassSegment("dp", name, start_s, duration_s, "exposed_dp"))
    return start_s + duration_s


def _add_compute(
    segments: list[PassSegment], name: str, slot: LayerSlot, start_s: float, stretch: float
) -> float:
    """A layer's terms in turn; collectives inside layers on their own streams."""
    clock_s = start_s
    terms = [*zip(TERMS, slot.cost.terms_s, strict=True)]
    terms[TECHNIQUE : TECHNIQUE + 1] = slot.technique_s
    for term, seconds in [*terms, ("elementwise", slot.copy_s - slot.fetched_s)]:
        if not seconds:
            continue
        stream = term.removeprefix("exposed_") if term.startswith("exposed_") else "compute"
        segments.append(PassSegment(stream, name, clock_s, seconds * stretch, term))
        clock_s += seconds * stretch
    return clock_s
