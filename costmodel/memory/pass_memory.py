"""Effect of one pass on a rank's live bytes, by term.

A pass runs on a fresh ledger: gathers, the layers' peaks and retained bytes, reductions. Messages
belong to the schedule (see ``peak``). Effects depend on layers and kind, not on prices, so middle
stages and rate sweeps share them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.report.report import MEMORY_TERMS
from ..lowering.chunk import StageChunk
from ..lowering.layer_lowering import LoweredLayer
from ..lowering.stage_passes import PassKind
from ..lowering.waiting_sums import finished_unit, placed_sums, waits
from ..sharding.fsdp_unit import FsdpUnit, GatherBytes
from ..symbolic.lowered_pass import LoweredPass

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, WORKSPACE, COMMUNICATION = range(6)
LEDGER_TERMS = MEMORY_TERMS[:6]


class PassMemory(NamedTuple):
    """Bytes by term, relative to a pass's start: at peak, and after."""

    peak: tuple[int, ...]
    change: tuple[int, ...]


class Ledger:
    """Live bytes by term, and the peak so far."""

    def __init__(self) -> None:
        self.live = [0] * len(LEDGER_TERMS)
        self.peak = tuple(self.live)
        self._peak_total = 0

    def add(self, term: int, size_bytes: int) -> None:
        """Add bytes (remove, if negative) until further notice."""
        self.live[term] += size_bytes
        if size_bytes > 0:
            self.touch(0)

    def touch(self, workspace_bytes: int) -> None:
        """Account for a moment with ``workspace_bytes`` on top."""
        total = sum(self.live) + workspace_bytes
        if total > self._peak_total:
            self._peak_total = total
            peak = list(self.live)
            peak[WORKSPACE] += workspace_bytes
            self.peak = tuple(peak)


class PassMemoryModel:
    """Run one pass of a chunk on a fresh ledger."""

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
        buffer_bytes = 0
        for number, entry in enumerate(chunk.layers):
            gathered = gathers[number]
            buffer_bytes = self._gather(
                ledger, gathered.gathers if gathered is not None else (), buffer_bytes
            )
            following = gathers[number + 1] if number + 1 < len(gathers) else None
            prefetched_bytes = self._prefetched_bytes(following)
            ledger.add(COMMUNICATION, prefetched_bytes)
            received = number == 0 and chunk.input_bytes > 0
            self._layer_forward(ledger, entry.lowered, received, self._beside_bytes(entry.lowered))
            ledger.live[COMMUNICATION] -= prefetched_bytes
            if entry.unit is not None and entry.unit.gathers_each_use:
                ledger.add(PARAMETERS, -entry.unit.whole_bytes)
        ledger.add(COMMUNICATION, -buffer_bytes)
        ledger.add(ACTIVATIONS, -chunk.output_bytes)
        ledger.add(ACTIVATIONS, -sum(s.size_bytes for s in chunk.sources if not s.kept))

    @staticmethod
    def _layer_forward(
        ledger: Ledger, lowered: LoweredLayer, received: bool, beside_bytes: int
    ) -> None:
        """Run a layer forward on ``ledger``.

        An input ``received`` by the chunk is kept for the backward. A redistributing layer releases
        its input at once, others at their end; during redistribution it counts twice, an upper
        bound.
        """
        kept_bytes = lowered.input_bytes if received and not lowered.keeps_input else 0
        if lowered.redistributes_input:
            ledger.add(ACTIVATIONS, kept_bytes)
        ledger.touch(lowered.forward.peak_bytes + beside_bytes)
        ledger.add(ACTIVATIONS, lowered.forward.change_bytes)
        if not lowered.redistributes_input:
            ledger.add(ACTIVATIONS, kept_bytes)

    @staticmethod
    def _gather(ledger: Ledger, gathers: tuple[GatherBytes, ...], buffer_bytes: int) -> int:
        for gather in gathers:
            ledger.add(COMMUNICATION, gather.flat_bytes)
            ledger.touch(gather.cast_bytes)
            ledger.add(COMMUNICATION, -buffer_bytes)
            ledger.add(PARAMETERS, gather.whole_bytes)
            buffer_bytes = gather.flat_bytes
        return buffer_bytes

    def _backward(self, ledger: Ledger, chunk: StageChunk, kind: PassKind) -> None:
        ledger.add(ACTIVATIONS, chunk.output_bytes + sum(s.size_bytes for s in chunk.sources))
        reduced = replicated_bytes = held_bytes = 0
        sums = placed_sums(chunk) if kind.last and waits(chunk) else ()
        for number in reversed(range(len(chunk.layers))):
            entry = chunk.layers[number]
            if entry.unit is not None and entry.unit.gathers_each_use:
                for gather in entry.unit.gathers:  # the buffer is freed once copied
                    ledger.add(COMMUNICATION, -self._gather(ledger, (gather,), 0))
            prefetched_bytes = self._prefetched_backward(chunk, number)
            ledger.add(COMMUNICATION, prefetched_bytes)
            for lowered in chunk.backward_passes(number, kind.first, kind.last, kind.part):
                self._layer_backward(ledger, lowered, self._beside_bytes(entry.lowered))
            ledger.live[COMMUNICATION] -= prefetched_bytes
            unit = finished_unit(chunk, number)
            if unit is not None and kind.part == "input":
                ledger.add(PARAMETERS, -unit.whole_bytes if unit.gathers_each_use else 0)
            elif unit is not None:
                reduced, added_bytes = self._finish_unit(ledger, unit, kind, reduced)
                replicated_bytes += added_bytes
            if sums:
                ledger.add(COMMUNICATION, sums[number].held_bytes - held_bytes)
                held_bytes = sums[number].held_bytes
        ledger.add(COMMUNICATION, -reduced - replicated_bytes)
        first = chunk.layers[0]
        ledger.add(ACTIVATIONS, -sum(s.receives_bytes for s in chunk.sources))
        ledger.add(ACTIVATIONS, -sum(s.size_bytes for s in chunk.sources if s.kept))
        if chunk.input_bytes:
            ledger.add(ACTIVATIONS, -first.lowered.input_bytes)
            if not first.lowered.keeps_input:
                ledger.add(ACTIVATIONS, -first.lowered.input_bytes)

    def _weights(self, ledger: Ledger, chunk: StageChunk, kind: PassKind) -> None:
        reduced = replicated_bytes = 0
        for number in reversed(range(len(chunk.layers))):
            for lowered in chunk.backward_passes(number, kind.first, kind.last, kind.part):
                self._layer_backward(ledger, lowered)
            unit = finished_unit(chunk, number)
            if unit is not None:
                reduced, added_bytes = self._finish_unit(ledger, unit, kind, reduced)
                replicated_bytes += added_bytes
        ledger.add(COMMUNICATION, -reduced - replicated_bytes)

    def _prefetched_backward(self, chunk: StageChunk, number: int) -> int:
        unit = chunk.layers[number - 1].unit if number else None
        gathers = unit is not None and unit.gathers_each_use
        return self._prefetched_bytes(unit) if gathers else 0

    def _prefetched_bytes(self, unit: FsdpUnit | None) -> int:
        """Buffers of a unit's gather, if it runs beside the layer before."""
        if unit is None or not (self.prefetch and unit.overlaps.dp_parameter):
            return 0
        return unit.flat_bytes + unit.fetched_bytes

    def _beside_bytes(self, lowered: LoweredLayer) -> int:
        """Buffers of lanes beside a layer's pass, where they run beside it."""
        return lowered.beside_bytes if self.prefetch else 0

    def _layer_backward(self, ledger: Ledger, backward: LoweredPass, beside_bytes: int = 0) -> None:
        ledger.touch(backward.peak_bytes + beside_bytes)
        gradient_bytes = backward.gradient_bytes
        ledger.add(ACTIVATIONS, backward.change_bytes - gradient_bytes)
        ledger.add(GRADIENTS, 0 if self.contiguous else gradient_bytes)

    def _finish_unit(
        self, ledger: Ledger, unit: FsdpUnit, kind: PassKind, reduced: int
    ) -> tuple[int, int]:
        """After a unit's backward: keep its gradients, or reduce them.

        Returns the reduction's buffer, held until the next one, and bytes held until the pass ends.
        """
        if not (kind.last or unit.reduces_each_micro_batch):
            self._keep_gradients(ledger, unit, kind)
            return reduced, 0
        unreduced_bytes = unit.gradient_bytes
        if unit.reduce.upcast and not kind.first and not unit.reduces_each_micro_batch:
            ledger.add(GRADIENTS, -unit.gradient_bytes)
            unreduced_bytes = unit.accumulated_bytes
        gathered = kind.part == "whole" or not unit.gathers_each_use
        if gathered and (kind.last or unit.gathers_each_use):
            ledger.add(PARAMETERS, -unit.whole_bytes)
        ledger.add(COMMUNICATION, unit.reduce_bytes.input_bytes - reduced)
        ledger.live[GRADIENTS] += unit.shard_gradient_bytes - unreduced_bytes
        last_gradient_bytes = (
            unreduced_bytes * unit.last_gradient_elements // max(unit.local_elements, 1)
        )
        ledger.touch(max(unit.reduce_bytes.scratch_bytes, last_gradient_bytes))
        if kind.first or not unit.reduces_each_micro_batch:
            return unit.reduce_bytes.input_bytes, 0
        ledger.add(GRADIENTS, -unit.shard_gradient_bytes)
        ledger.add(COMMUNICATION, unit.reduce_bytes.replicated_bytes)
        return unit.reduce_bytes.input_bytes, unit.reduce_bytes.replicated_bytes

    @staticmethod
    def _keep_gradients(ledger: Ledger, unit: FsdpUnit, kind: PassKind) -> None:
        if not unit.reduce.upcast:
            return
        if kind.first:
            ledger.add(GRADIENTS, unit.accumulated_bytes - unit.gradient_bytes)
        else:
            ledger.add(GRADIENTS, -unit.gradient_bytes)


def entry_unit(chunk: StageChunk, number: int) -> FsdpUnit | None:
    """The unit to gather before layer ``number`` runs forward."""
    entry = chunk.layers[number]
    if entry.unit is None:  # an embedding in the head's unit, gathered for the first such layer
        return chunk.layers[-1].unit if number == chunk.first_shared else None
    shared = number == len(chunk.layers) - 1 and chunk.first_shared >= 0
    return None if shared else entry.unit


class PassMemoryCache:
    """Cached effects of passes on the live bytes of a rank."""

    def __init__(self, stack: StackSpec) -> None:
        self.stack = stack
        # Chunks keep alive the layers and units whose ids are in the keys.
        self._effects: dict[tuple[object, ...], tuple[StageChunk, dict[PassKind, PassMemory]]] = {}

    def of_stage(
        self, chunks: tuple[StageChunk, ...], kinds: tuple[PassKind, ...], prefetch: bool
    ) -> list[PassMemory]:
        """The effect of each kind of pass of a stage.

        ``prefetch``: the next unit's gather may run beside a layer's computation.
        """
        caches = [self._of_chunk(chunk, prefetch) for chunk in chunks]
        model = PassMemoryModel(self.stack, chunks, prefetch)
        effects = []
        for kind in kinds:
            cache, chunk_kind = caches[kind.chunk], kind._replace(chunk=0)
            if chunk_kind not in cache:
                cache[chunk_kind] = model.effect_of(kind)
            effects.append(cache[chunk_kind])
        return effects

    def _of_chunk(self, chunk: StageChunk, prefetch: bool) -> dict[PassKind, PassMemory]:
        key = (chunk.layer_ids, chunk.input_bytes, chunk.output_bytes, chunk.sources, prefetch)
        return self._effects.setdefault(key, (chunk, {}))[1]
