"""Seconds of one micro-batch through a chunk, with gathers and reductions.

Layers compute one after another; sharding traffic has its own stream where the stack overlaps it.
Forward, the next unit's gather is issued when a layer starts; backward, the previous layer's gather
is issued when a layer starts and the reduction when it ends; traffic runs in issue order. A layer
starts when the previous one is done and its parameters are gathered; a pass ends when everything
has. Experts' exchanges beside a layer's kernels take turns with sharding traffic of their link
level. Its output is ready once the layers' own work is done: the reductions after that are its
tail. Without overlap everything is serial. Lanes of techniques run beside the layers in the same
way, a wire's in turn with the traffic; what they add to a pass stands under the techniques' names.
Times never decrease when any duration grows, which makes bounds provable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..lowering.waiting_sums import waits
from ..pricing.costs import NO_SERIAL, TECHNIQUE, TERMS
from ..pricing.overlap import slowed
from ..pricing.pricer import Pricer
from .lane_clocks import LaneClocks, PlacedLaneWork
from .layer_slots import LayerSlot, layer_slots
from .own_spans import with_own_spans
from .window_slots import with_windows

PASS_TERMS = (*TERMS, "exposed_dp")
ELEMENTWISE, EXPOSED_DP = PASS_TERMS.index("elementwise"), PASS_TERMS.index("exposed_dp")


class PassSegment(NamedTuple):
    """A piece of a pass on one stream, from its start, for timelines.

    ``own``: on a lane of a technique, beside the term that counts it.
    """

    stream: str
    name: str
    start_s: float
    duration_s: float
    term: str
    own: bool = False


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
    if kind.last and not kind.forward and waits(chunk):
        slots = with_windows(slots, chunk, numbers, kind, pricer)
    names = _names(chunk, numbers, kind) if detail else []
    if detail:
        slots = with_own_spans(slots, chunk, numbers, kind, pricer)
    if any(slot.lanes for slot in slots):
        return lanes_time(slots, pricer.stack.overlap_slowdown, names)
    if not (pricer.hides_sharding or any(slot.overlaps for slot in slots)):
        return _serial(slots, names)
    return _overlapped(slots, pricer.stack.overlap_slowdown, names)


def layer_order(chunk: StageChunk, kind: PassKind) -> list[int]:
    """Layer numbers of a chunk in a pass's order."""
    numbers = range(len(chunk.layers))
    return list(numbers if kind.forward else reversed(numbers))


def _names(chunk: StageChunk, numbers: list[int], kind: PassKind) -> list[str]:
    letter = "F" if kind.forward else "W" if kind.part == "weight" else "B"
    return [f"layer {chunk.layers[number].index} {letter}" for number in numbers]


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
    shares = priced_s, measured_s, learned_s
    return PassTime(0.0, terms, *shares, technique_s=technique_s, serial_s=serial_s)


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


def lanes_time(slots: list[LayerSlot], slowdown: float, names: Sequence[str] = ()) -> PassTime:
    """Seconds of a pass with lanes; they add what it takes longer than without them.

    Args:
        slots: its layers, in order.
        slowdown: factor of work that shares the device.
        names: of the layers, to list the segments.
    """
    plain_s = _overlapped([slot._replace(lanes=()) for slot in slots], slowdown).time_s
    total = _overlapped(slots, slowdown, names)
    added_s = max(0.0, total.time_s - plain_s)
    total.terms_s[EXPOSED_DP] = max(0.0, total.terms_s[EXPOSED_DP] - added_s)
    total.terms_s[TECHNIQUE] += added_s
    lane_s = sum_by_name((lane.technique, lane.seconds) for slot in slots for lane in slot.lanes)
    share = added_s / sum(lane_s.values()) if added_s else 0.0
    shares = [(name, seconds * share) for name, seconds in lane_s.items()]
    total.technique_s = sum_by_name(total.technique_s.items(), shares)
    return total


def _overlapped(slots: list[LayerSlot], slowdown: float, names: Sequence[str] = ()) -> PassTime:
    """Two streams with prefetch of one layer, and lanes; see the module docstring.

    A gather or reduction that is not hidden stops the computation.
    """
    total = _summed(slots)
    terms, segments = total.terms_s, total.segments
    compute_free = output_ready = pending_s = 0.0
    lanes = LaneClocks([slot.lanes for slot in slots], slowdown)
    lanes.issue(0, "gather", 0.0, 0.0)
    issued = max(lanes.wire_free, lanes.gather_gates[0]) if slots[0].gather_s else 0.0
    gathered = issued + slots[0].gather_s
    lanes.wire_free = max(lanes.wire_free, gathered)
    if names:
        _add_collective(segments, f"{names[0]} gather", issued, slots[0].gather_s)
    lanes.issue(0, "before", 0.0, 0.0)
    for number, (slot, following) in enumerate(zip(slots, [*slots[1:], None], strict=True)):
        work_s = slot.cost.time_s + slot.copy_s
        gather_s = following.gather_s if following is not None else 0.0
        prefetches = following is not None and following.hides_gather
        beside_s = (gather_s if prefetches else 0.0) + pending_s + lanes.beside_s(number)
        start = max(compute_free, gathered, lanes.gates[number])
        busy_s = slowed(work_s, beside_s, slowdown)
        if names:
            _add_compute(segments, names[number], slot, start, busy_s / work_s if work_s else 1.0)
        exchanged = start
        if slot.exchange_s:
            exchange_s = slot.exchanging_s(slowdown)
            exchanged = lanes.wire_free = max(lanes.wire_free, start) + exchange_s
        compute_free = output_ready = max(start + busy_s, exchanged)
        lanes.issue(number + 1, "gather", start, work_s)
        if following is not None and gather_s:
            issued = max(lanes.wire_free, start if prefetches else compute_free)
            issued = max(issued, lanes.gather_gates[number + 1])
            duration_s = slowed(gather_s, work_s, slowdown) if prefetches else gather_s
            gathered = lanes.wire_free = issued + duration_s
            if names:
                _add_collective(segments, f"{names[number + 1]} gather", issued, duration_s)
        lanes.issue(number + 1, "before", start, work_s)
        lanes.issue(number, "with", start, work_s)
        next_work_s = following.cost.time_s if following is not None else 0.0
        reduced = compute_free
        if slot.reduce_s:
            issued = max(lanes.wire_free, compute_free)
            overlapped_s = next_work_s if slot.hides_reduction else 0.0
            duration_s = slowed(slot.reduce_s, overlapped_s, slowdown)
            reduced = lanes.wire_free = issued + duration_s
            if names:
                _add_collective(segments, f"{names[number]} reduce", issued, duration_s)
            compute_free = compute_free if slot.hides_reduction else reduced
        lanes.issue(number, "after", output_ready, next_work_s)
        lanes.issue(number, "reduced", reduced, next_work_s)
        pending_s = slot.reduce_s if slot.hides_reduction else 0.0
    if names:
        segments += [_lane_segment(placed, names) for placed in lanes.placed]
    total.time_s = max(compute_free, lanes.wire_free, lanes.last_end)
    total.tail_s = total.time_s - output_ready
    terms[EXPOSED_DP] = max(0.0, total.time_s - sum(terms))  # rounding may leave -1e-17
    return total


def _lane_segment(placed: PlacedLaneWork, names: Sequence[str]) -> PassSegment:
    work, name = placed.work, f"{names[placed.number]} {placed.work.technique}"
    return PassSegment(work.lane, name, placed.start_s, placed.seconds, work.technique)


def _add_collective(
    segments: list[PassSegment], name: str, start_s: float, duration_s: float
) -> float:
    if duration_s:
        segments.append(PassSegment("dp", name, start_s, duration_s, "exposed_dp"))
    return start_s + duration_s


def _add_compute(
    segments: list[PassSegment], name: str, slot: LayerSlot, start_s: float, stretch: float
) -> float:
    """A layer's terms in turn; collectives inside layers, and techniques, on their own streams."""
    clock_s = start_s
    terms = [*zip(TERMS, slot.cost.terms_s, strict=True)]
    terms[TECHNIQUE : TECHNIQUE + 1] = slot.technique_s
    for term, seconds in [*terms, ("elementwise", slot.copy_s - slot.fetched_s)]:
        if not seconds:
            continue
        stream = term.removeprefix("exposed_") if term.startswith("exposed_") else "compute"
        segments.append(PassSegment(stream, name, clock_s, seconds * stretch, term))
        clock_s += seconds * stretch
    for span in slot.spans:
        place = start_s + span.start_s * stretch, span.duration_s * stretch
        segments.append(PassSegment(span.lane, f"{name} {span.name}", *place, span.term, own=True))
    return clock_s
