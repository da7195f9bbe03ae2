"""One pass as spans: stretches of kernels, each collective, gather and reduction.

:mod:`pass_time` gives a pass's duration by a formula; here the same layers are placed on the
streams of a rank one by one. A span has a stream, which runs its spans in order, and dependencies.
Collectives have their exposed seconds, as in prices: what hides beside kernels takes no time here
either. A technique's lanes are streams as well; on the wire they take turns with sharding traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...spec.report.work_items import Kernel
from ..lowering.chunk import StageChunk
from ..lowering.stage_passes import PassKind
from ..pricing.costs import EXPOSED_EP, TERMS
from ..pricing.overlap import slowed
from ..pricing.pricer import Pricer
from ..symbolic.lane_work import LANES, Begins, Lane
from ..symbolic.lowered_pass import LoweredPass
from .lane_clocks import beside_seconds
from .layer_slots import LayerSlot, layer_slots
from .pass_time import layer_order

COMPUTE, COLLECTIVE, SHARDING = range(3)
"""Streams of a rank besides messages: kernels, collectives inside layers, sharding traffic."""
FIRST_LANE = 5
"""Stream of the first of ``LANES``, after those of messages."""
HOST = TERMS.index("host")
StreamSeconds = tuple[int, float]
"""A stream and seconds."""


class PassSpans(NamedTuple):
    """Spans of a pass, and the number of the one that its message waits for."""

    spans: tuple[PassSpan, ...]
    output: int


class PassSpan(NamedTuple):
    """A piece of a pass; it waits for spans ``after`` and ``also``.

    Spans are counted from 1; 0 is the beginning of the pass.
    """

    stream: int
    seconds: float
    after: int = 0
    also: int = 0


def pass_spans(chunk: StageChunk, kind: PassKind, pricer: Pricer) -> PassSpans:
    """The spans of a pass of ``chunk``; arguments as ``pass_time``."""
    numbers = layer_order(chunk, kind)
    slots = layer_slots(chunk, numbers, kind, pricer)
    cache: dict[tuple[int, ...], list[StreamSeconds]] = {}
    stretches = []
    for number in numbers:
        passes: tuple[LoweredPass, ...] = (chunk.layers[number].lowered.forward,)
        if not kind.forward:
            passes = chunk.backward_passes(number, kind.first, kind.last, kind.part)
        key = tuple(map(id, passes))
        if key not in cache:
            cache[key] = layer_stretches(passes, pricer)
        line_s = pricer.in_line_s(chunk.lanes(number, kind))
        stretches.append([*cache[key], (COMPUTE, line_s)] if line_s else cache[key])
    if not (pricer.hides_sharding or any(s.overlaps for s in slots)):
        return _serial(slots, stretches)
    return _overlapped(slots, stretches, pricer)


def layer_stretches(passes: tuple[LoweredPass, ...], pricer: Pricer) -> list[StreamSeconds]:
    """A layer's passes as stretches of kernels with the collectives between them.

    Host seconds that outlast the kernels follow them. Expert dispatch exposes what outlasts the
    whole pass; each exchange has its share of that.
    """
    cost = pricer.passes(passes)
    items = [item for lowered in passes for item in pricer.exposed_items(lowered)]
    exchanged_s = sum(seconds for _, name, seconds, _ in items if name == "exposed_ep")
    share = cost.terms_s[EXPOSED_EP] / exchanged_s if exchanged_s else 0.0
    stretches: list[StreamSeconds] = [(COMPUTE, 0.0)]
    for work, name, seconds, _ in items:
        if not isinstance(work, Kernel):
            exposed_s = seconds * share if name == "exposed_ep" else seconds
            stretches += [(COLLECTIVE, exposed_s)] if exposed_s else []
        elif stretches[-1][0] == COMPUTE:
            stretches[-1] = (COMPUTE, stretches[-1][1] + seconds)
        else:
            stretches.append((COMPUTE, seconds))
    return [*stretches, (COMPUTE, cost.terms_s[HOST])] if cost.terms_s[HOST] else stretches


class _Layout:
    """Spans so far; ``last`` ends the layers placed, in computation order."""

    def __init__(self) -> None:
        self.spans: list[PassSpan] = []
        self.last = 0

    def add(self, stream: int, seconds: float, after: int, also: int = 0) -> int:
        """Add a span; returns its number."""
        self.spans.append(PassSpan(stream, seconds, after, also))
        return len(self.spans)

    def layer(
        self, stretches: Sequence[StreamSeconds], copy_s: float, stretch: float, gate: int
    ) -> None:
        """Place a layer after the previous one, once span ``gate`` is over."""
        for stream, seconds in stretches:
            self.last = self.add(stream, seconds * stretch, self.last, gate)
        if copy_s:
            self.last = self.add(COMPUTE, copy_s * stretch, self.last)


def _serial(slots: list[LayerSlot], stretches: list[list[StreamSeconds]]) -> PassSpans:
    layout, output = _Layout(), 0
    for slot, layer_stretches in zip(slots, stretches, strict=True):
        if slot.gather_s:
            layout.last = layout.add(SHARDING, slot.gather_s, layout.last)
        layout.layer(layer_stretches, slot.copy_s, 1.0, 0)
        output = layout.last
        if slot.reduce_s:
            layout.last = layout.add(SHARDING, slot.reduce_s, layout.last)
    return PassSpans(tuple(layout.spans), output)


class _LaneSpans:
    """Spans of lanes beside the layers of a pass, and what layers wait for."""

    def __init__(self, layout: _Layout, slots: list[LayerSlot], slowdown: float) -> None:
        self._layout, self._slowdown = layout, slowdown
        self._lanes = [slot.lanes for slot in slots]
        self.any = any(self._lanes)
        self.gates: list[list[int]] = [[] for _ in slots]
        self.gather_gates: list[list[int]] = [[] for _ in slots]

    def issue(self, number: int, begins: Begins, after: int, work_s: float) -> None:
        """Place a layer's work of one kind once span ``after`` is over."""
        for work in self._lanes[number] if number < len(self._lanes) else ():
            if work.begins != begins:
                continue
            seconds = slowed(work.seconds, work_s, self._slowdown)
            span = self._layout.add(_stream(work.lane), seconds, after)
            if begins == "gather":
                self.gather_gates[number].append(span)
            awaited = work.awaited_by(number)
            if awaited is not None and awaited < len(self.gates):
                self.gates[awaited].append(span)

    def open_gather(self, number: int) -> None:
        """Hold the wire until the work that a layer's gather waits for is over."""
        for awaited in self.gather_gates[number]:
            self._layout.add(SHARDING, 0.0, awaited)

    def beside_s(self, number: int) -> float:
        """Seconds of lanes that share the device with a layer."""
        return beside_seconds(self._lanes, number) if self.any else 0.0


def _stream(lane: Lane) -> int:
    return SHARDING if lane == "wire" else FIRST_LANE + LANES.index(lane)


def _overlapped(
    slots: list[LayerSlot], stretches: list[list[StreamSeconds]], pricer: Pricer
) -> PassSpans:
    """Gathers, reductions and lanes overlapped with layers; see :mod:`pass_time`."""
    factor = pricer.stack.overlap_slowdown
    layout, output = _Layout(), 0
    lanes, gate = _LaneSpans(layout, slots, factor), 0
    lanes.issue(0, "gather", 0, 0.0)
    if slots[0].gather_s:
        lanes.open_gather(0)
        gate = layout.add(SHARDING, slots[0].gather_s, 0)
    lanes.issue(0, "before", 0, 0.0)
    reducing_s = 0.0
    for number, slot in enumerate(slots):
        following = slots[number + 1] if number + 1 < len(slots) else None
        work_s = slot.cost.time_s + slot.copy_s
        gather_s = 0.0 if following is None else following.gather_s
        prefetches = following is not None and following.hides_gather
        overlapped_s = reducing_s + (gather_s if prefetches else 0.0) + lanes.beside_s(number)
        for awaited in lanes.gates[number]:
            layout.last = layout.add(COMPUTE, 0.0, layout.last, awaited)
        if lanes.any:  # the moment at which lanes begin
            layout.last = layout.add(COMPUTE, 0.0, layout.last, gate)
        layer_start = layout.last
        stretch = slowed(work_s, overlapped_s, factor) / work_s if work_s else 1.0
        exchange = 0
        if slot.exchange_s:
            layer_start = layout.last = layout.add(COMPUTE, 0.0, layout.last, gate)
            exchange = layout.add(SHARDING, slot.exchanging_s(factor), layer_start)
        layout.layer(stretches[number], slot.copy_s, stretch, gate)
        if exchange:
            layout.last = layout.add(COMPUTE, 0.0, layout.last, exchange)
        output = layout.last
        lanes.issue(number + 1, "gather", layer_start, work_s)
        if gather_s:
            lanes.open_gather(number + 1)
        if gather_s and prefetches:
            gate = layout.add(SHARDING, slowed(gather_s, work_s, factor), layer_start, gate)
        elif gather_s:
            gate = layout.add(SHARDING, gather_s, layout.last)
        lanes.issue(number + 1, "before", layer_start, work_s)
        lanes.issue(number, "with", layer_start, work_s)
        next_s = 0.0 if following is None else following.cost.time_s
        reduced = output
        if slot.reduce_s:
            beside_s = next_s if slot.hides_reduction else 0.0
            reduced = layout.add(SHARDING, slowed(slot.reduce_s, beside_s, factor), layout.last)
            layout.last = layout.last if slot.hides_reduction else reduced
        lanes.issue(number, "after", output, next_s)
        lanes.issue(number, "reduced", reduced, next_s)
        reducing_s = slot.reduce_s if slot.hides_reduction else 0.0
    return PassSpans(tuple(layout.spans), output)
