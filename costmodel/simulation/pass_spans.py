"""One pass as spans: stretches of kernels, each collective, each gather and reduction.

:mod:`pass_time` says in a formula how long a pass takes; here the same layers are laid on the
streams of a rank one by one. A span has a stream, which runs its spans in order, and what else it
waits for. Collectives have the seconds that they show, as in prices: what hides beside kernels
takes no time here either.
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
from ..symbolic.lowered_pass import LoweredPass
from .pass_time import LayerSlot, layer_order, layer_slots

COMPUTE, COLLECTIVE, SHARDING = range(3)
"""Streams of a rank beside its messages: kernels, collectives inside layers, sharded states."""
HOST = TERMS.index("host")
StreamSeconds = tuple[int, float]
"""A stream and seconds."""


class PassSpan(NamedTuple):
    """A piece of a pass; ``after`` and ``also`` are spans of the pass that it waits for.

    They are counted from 1; 0 is the beginning of the pass.
    """

    stream: int
    seconds: float
    after: int = 0
    also: int = 0


def pass_spans(chunk: StageChunk, kind: PassKind, pricer: Pricer) -> tuple[PassSpan, ...]:
    """The spans of a pass of ``chunk``; arguments as ``pass_time``."""
    numbers = layer_order(chunk, kind)
    slots = layer_slots(chunk, numbers, kind, pricer)
    known: dict[tuple[int, ...], list[StreamSeconds]] = {}
    parts = []
    for number in numbers:
        passes: tuple[LoweredPass, ...] = (chunk.layers[number].lowered.forward,)
        if not kind.forward:
            passes = chunk.backward_passes(number, kind.first, kind.last, kind.part)
        key = tuple(map(id, passes))
        if key not in known:
            known[key] = layer_stretches(passes, pricer)
        parts.append(known[key])
    if not pricer.hides_sharding:
        return _serial(slots, parts)
    return _overlapped(slots, parts, pricer)


def layer_stretches(passes: tuple[LoweredPass, ...], pricer: Pricer) -> list[StreamSeconds]:
    """Passes of a layer in a row as stretches of kernels with the collectives between them.

    Seconds of the host that outlast the kernels follow them. Tokens on their way to experts show
    what outlasts the whole pass; each exchange has its share of that.
    """
    cost = pricer.passes(passes)
    items = [item for lowered in passes for item in pricer.exposed_items(lowered)]
    exchanged_s = sum(seconds for _, name, seconds, _ in items if name == "exposed_ep")
    share = cost.terms_s[EXPOSED_EP] / exchanged_s if exchanged_s else 0.0
    found: list[StreamSeconds] = [(COMPUTE, 0.0)]
    for work, name, seconds, _ in items:
        if not isinstance(work, Kernel):
            shown_s = seconds * share if name == "exposed_ep" else seconds
            found += [(COLLECTIVE, shown_s)] if shown_s else []
        elif found[-1][0] == COMPUTE:
            found[-1] = (COMPUTE, found[-1][1] + seconds)
        else:
            found.append((COMPUTE, seconds))
    return [*found, (COMPUTE, cost.terms_s[HOST])] if cost.terms_s[HOST] else found


class _Layout:
    """Spans so far; ``last`` is the end of the layers laid out, in computation's own order."""

    def __init__(self) -> None:
        self.spans: list[PassSpan] = []
        self.last = 0

    def add(self, stream: int, seconds: float, after: int, also: int = 0) -> int:
        """One more span; its number."""
        self.spans.append(PassSpan(stream, seconds, after, also))
        return len(self.spans)

    def layer(
        self, parts: Sequence[StreamSeconds], copy_s: float, stretch: float, gate: int
    ) -> None:
        """A layer after the one before it, once ``gate`` is over."""
        for stream, seconds in parts:
            self.last = self.add(stream, seconds * stretch, self.last, gate)
        if copy_s:
            self.last = self.add(COMPUTE, copy_s * stretch, self.last)


def _serial(slots: list[LayerSlot], parts: list[list[StreamSeconds]]) -> tuple[PassSpan, ...]:
    """Everything one after another."""
    layout = _Layout()
    for slot, of_layer in zip(slots, parts, strict=True):
        if slot.gather_s:
            layout.last = layout.add(SHARDING, slot.gather_s, layout.last)
        layout.layer(of_layer, slot.copy_s, 1.0, 0)
        if slot.reduce_s:
            layout.last = layout.add(SHARDING, slot.reduce_s, layout.last)
    return tuple(layout.spans)


def _overlapped(
    slots: list[LayerSlot], parts: list[list[StreamSeconds]], pricer: Pricer
) -> tuple[PassSpan, ...]:
    """Gathers and reductions beside the layers, as the stack hides them; see :mod:`pass_time`."""
    factor, hides = pricer.stack.overlap_slowdown, pricer.overlaps
    layout = _Layout()
    gate = layout.add(SHARDING, slots[0].gather_s, 0) if slots[0].gather_s else 0
    reducing_s = 0.0
    for number, slot in enumerate(slots):
        following = slots[number + 1] if number + 1 < len(slots) else None
        work_s = slot.cost.time_s + slot.copy_s
        gather_s = 0.0 if following is None else following.gather_s
        beside_s = reducing_s + (gather_s if hides.dp_parameter else 0.0)
        begins = layout.last
        stretch = slowed(work_s, beside_s, factor) / work_s if work_s else 1.0
        layout.layer(parts[number], slot.copy_s, stretch, gate)
        if gather_s and hides.dp_parameter:
            gate = layout.add(SHARDING, slowed(gather_s, work_s, factor), begins, gate)
        elif gather_s:
            gate = layout.add(SHARDING, gather_s, layout.last)
        if slot.reduce_s:
            hidden = following is not None and hides.dp_gradient
            next_s = following.cost.time_s if following is not None and hidden else 0.0
            reduced = layout.add(SHARDING, slowed(slot.reduce_s, next_s, factor), layout.last)
            layout.last = layout.last if hides.dp_gradient else reduced
        reducing_s = slot.reduce_s if hides.dp_gradient else 0.0
    return tuple(layout.spans)
