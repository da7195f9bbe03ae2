"""What one pass does to the live bytes of a rank, by term.

A pass is played on a fresh ledger: gathers, the layers' own peaks and what they leave behind,
reductions. Messages are the schedule's business (see ``memory``).
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.report import MEMORY_TERMS
from ..lowering.chunk import StageChunk
from ..lowering.layer_lowering import LoweredLayer
from ..lowering.stage_passes import PassKind
from ..sharding.fsdp_unit import FsdpUnit, GatherBytes
from ..symbolic.lowered_pass import LoweredPass

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, WORKSPACE, COMMUNICATION = range(6)
LEDGER_TERMS = MEMORY_TERMS[:6]


class PassMemory(NamedTuple):
    """Bytes by term against the start of a pass: at its fullest moment, and after it."""

    peak: tuple[int, ...]
    change: tuple[int, ...]


class Ledger:
    """Live bytes by term, and the fullest moment so far."""

    def __init__(self) -> None:
        self.live = [0] * len(LEDGER_TERMS)
        self.peak = tuple(self.live)
        self._peak_total = 0

    def add(self, term: int, size_bytes: int) -> None:
        """Bytes that come (or go, if negative) and stay until further notice."""
        self.live[term] += size_bytes
        if size_bytes > 0:
            self.touch(0)

    def touch(self, workspace_bytes: int) -> None:
        """A moment at which ``workspace_bytes`` are needed on top."""
        total = sum(self.live) + workspace_bytes
        if total > self._peak_total:
            self._peak_total = total
            fullest = list(self.live)
            fullest[WORKSPACE] += workspace_bytes
            self.peak = tuple(fullest)


class PassMemoryModel:
    """Plays one pass of a chunk on a fresh ledger."""

    def __init__(self, stack: StackSpec, chunks: tuple[StageChunk, ...], prefetch: bool) -> None:
        self.chunks = chunks
        self.prefetch = prefetch
        self.contiguous = stack.state_layout == "contiguous"

    def effect_of(self, kind: PassKind) -> PassMemory:
        """The effect of a pass on live bytes."""
        ledger = Ledger()
        chunk = self.chunks[kind.chunk]
        if kind.forward:
            self._forward(ledger, chunk, kind)
        elif kind.part == "weight":
            self._weights(ledger, chunk, kind)
        else:
            self._backward(ledger, chunk, kind)
        return PassMemory(ledger.peak, tuple(ledger.live))

    def _forward(self, ledger: Ledger, chunk: StageChunk, kind: PassKind) -> None:
        ledger.add(ACTIVATIONS, chunk.receives_bytes)
        gathers = [
            unit
            if (unit := entry_unit(chunk, number)) is not None
            and unit.wrapped
            and (kind.first or unit.gathers_each_use)
            else None
            for number in range(len(chunk.layers))
        ]
        held = 0
        for number, entry in enumerate(chunk.layers):
            own = gathers[number]
            held = self._gather(ledger, own.gathers if own is not None else (), held)
            following = gathers[number + 1] if number + 1 < len(gathers) else None
            ahead = following.flat_bytes if self.prefetch and following is not None else 0
            ledger.add(COMMUNICATION, ahead)
            self._layer_forward(ledger, entry.lowered, number == 0 and chunk.input_bytes > 0)
            ledger.live[COMMUNICATION] -= ahead
            if entry.unit is not None and entry.unit.gathers_each_use:
                ledger.add(PARAMETERS, -entry.unit.whole_bytes)
        ledger.add(COMMUNICATION, -held)
        ledger.add(ACTIVATIONS, -chunk.output_bytes)
        ledger.add(ACTIVATIONS, -sum(s.size_bytes for s in chunk.sources if not s.kept))

    @staticmethod
    def _layer_forward(ledger: Ledger, lowered: LoweredLayer, received: bool) -> None:
        """A layer goes forward.

        Args:
            ledger: what is alive.
            lowered: the layer.
            received: whether its input came to the chunk, which keeps it for the backward. At a
                seam the layer lets go of it at once, else when it ends. While the seam moves it, it
                is counted twice: an upper bound where that is the fullest moment.
        """
        kept_bytes = lowered.input_bytes if received and not lowered.keeps_input else 0
        if lowered.redistributes_input:
            ledger.add(ACTIVATIONS, kept_bytes)
        ledger.touch(lowered.forward.peak_bytes)
        ledger.add(ACTIVATIONS, lowered.forward.change_bytes)
        if not lowered.redistributes_input:
            ledger.add(ACTIVATIONS, kept_bytes)

    @staticmethod
    def _gather(ledger: Ledger, gathers: tuple[GatherBytes, ...], held: int) -> int:
        """Gather a unit; a buffer stays until the next gather, the former one goes."""
        for each in gathers:
            ledger.add(COMMUNICATION, each.flat_bytes)
            ledger.touch(each.cast_bytes)
            ledger.add(COMMUNICATION, -held)
            ledger.add(PARAMETERS, each.whole_bytes)
            held = each.flat_bytes
        return held

    def _backward(self, ledger: Ledger, chunk: StageChunk, kind: PassKind) -> None:
        ledger.add(ACTIVATIONS, chunk.output_bytes + sum(s.size_bytes for s in chunk.sources))
        reduced = held = 0
        for number in reversed(range(len(chunk.layers))):
            entry = chunk.layers[number]
            if entry.unit is not None and entry.unit.gathers_each_use:
                for each in entry.unit.gathers:  # the buffer goes as soon as it is copied from
                    ledger.add(COMMUNICATION, -self._gather(ledger, (each,), 0))
            ahead = self._ahead_backward(chunk, number)
            ledger.add(COMMUNICATION, ahead)
            for lowered in chunk.backward_passes(number, kind.first, kind.last, kind.part):
                self._layer_backward(ledger, lowered)
            ledger.live[COMMUNICATION] -= ahead
            unit = self._finished_unit(chunk, number)
            if unit is not None and kind.part == "input":
                ledger.add(PARAMETERS, -unit.whole_bytes if unit.gathers_each_use else 0)
            elif unit is not None:
                reduced, more = self._finish_unit(ledger, unit, kind, reduced)
                held += more
        ledger.add(COMMUNICATION, -reduced - held)
        first = chunk.layers[0]
        ledger.add(ACTIVATIONS, -sum(s.receives_bytes for s in chunk.sources))
        ledger.add(ACTIVATIONS, -sum(s.size_bytes for s in chunk.sources if s.kept))
        if chunk.input_bytes:
            ledger.add(ACTIVATIONS, -first.lowered.input_bytes)
            if not first.lowered.keeps_input:
                ledger.add(ACTIVATIONS, -first.lowered.input_bytes)

    def _weights(self, ledger: Ledger, chunk: StageChunk, kind: PassKind) -> None:
        """The second part of a split backward: no messages, no gathers, then the reductions."""
        reduced = held = 0
        for number in reversed(range(len(chunk.layers))):
            for lowered in chunk.backward_passes(number, kind.first, kind.last, kind.part):
                self._layer_backward(ledger, lowered)
            unit = self._finished_unit(chunk, number)
            if unit is not None:
                reduced, more = self._finish_unit(ledger, unit, kind, reduced)
                held += more
        ledger.add(COMMUNICATION, -reduced - held)

    def _finished_unit(self, chunk: StageChunk, number: int) -> FsdpUnit | None:
        """The sharded unit whose gradients are complete after layer ``number``'s backward.

        A head that shares the embedding's unit moves with it: that backward comes last.
        """
        entry = chunk.layers[number]
        if entry.unit is not None and number == len(chunk.layers) - 1 and chunk.first_shared >= 0:
            return None
        unit = entry.unit if entry.unit is not None else entry_unit(chunk, number)
        return unit if unit is not None and unit.wrapped else None

    def _ahead_backward(self, chunk: StageChunk, number: int) -> int:
        """Buffer of the gather for the layer before, under way while this one goes backward."""
        unit = chunk.layers[number - 1].unit if number else None
        if not self.prefetch or unit is None or not unit.gathers_each_use:
            return 0
        return unit.flat_bytes

    def _layer_backward(self, ledger: Ledger, backward: LoweredPass) -> None:
        ledger.touch(backward.peak_bytes)
        gradient_bytes = backward.gradient_bytes
        ledger.add(ACTIVATIONS, backward.change_bytes - gradient_bytes)
        ledger.add(GRADIENTS, 0 if self.contiguous else gradient_bytes)

    def _finish_unit(
        self, ledger: Ledger, unit: FsdpUnit, kind: PassKind, reduced: int
    ) -> tuple[int, int]:
        """After a unit's backward: keep its gradients, or reduce them.

        Returns the reduction's buffer, held until the next one, and what is held until the
        pass ends.
        """
        if not (kind.last or unit.reduces_each_micro_batch):
            self._keep_gradients(ledger, unit, kind)
            return reduced, 0
        waiting = unit.gradient_bytes
        if unit.upcast and not kind.first and not unit.reduces_each_micro_batch:
            ledger.add(GRADIENTS, -unit.gradient_bytes)
            waiting = unit.accumulated_bytes
        gathered = kind.part == "whole" or not unit.gathers_each_use
        if gathered and (kind.last or unit.gathers_each_use):
            ledger.add(PARAMETERS, -unit.whole_bytes)
        ledger.add(COMMUNICATION, unit.reduce_input_bytes - reduced)
        ledger.live[GRADIENTS] += unit.shard_gradient_bytes - waiting
        held = waiting * unit.last_gradient_elements // max(unit.local_elements, 1)
        ledger.touch(max(unit.reduce_scratch_bytes, held))
        if kind.first or not unit.reduces_each_micro_batch:
            return unit.reduce_input_bytes, 0
        ledger.add(GRADIENTS, -unit.shard_gradient_bytes)
        ledger.add(COMMUNICATION, unit.replicated_bytes)
        return unit.reduce_input_bytes, unit.replicated_bytes

    @staticmethod
    def _keep_gradients(ledger: Ledger, unit: FsdpUnit, kind: PassKind) -> None:
        if not unit.upcast:
            return
        if kind.first:
            ledger.add(GRADIENTS, unit.accumulated_bytes - unit.gradient_bytes)
        else:
            ledger.add(GRADIENTS, -unit.gradient_bytes)


def entry_unit(chunk: StageChunk, number: int) -> FsdpUnit | None:
    """The unit that must be gathered before layer ``number`` runs forward."""
    entry = chunk.layers[number]
    if entry.unit is None:  # an embedding that shares the head's unit, gathered for the first
        return chunk.layers[-1].unit if number == chunk.first_shared else None
    shared = number == len(chunk.layers) - 1 and chunk.first_shared >= 0
    return None if shared else entry.unit
