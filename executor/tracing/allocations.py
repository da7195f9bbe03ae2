"""Allocation requests of a step's passes, from its live bytes and marks of passes and layers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

from ...kernels.addresses.arena import (
    BEGIN,
    BIRTH,
    DEATH,
    DEATH_ELSEWHERE,
    END,
    MARK,
    AllocatorEvent,
    CoreArena,
)
from ...spec.report.allocation_trace import AllocationTrace, Request
from ...spec.schedules.passes import Pass
from ..technique import TechniqueHooks
from .recorder import LiveBytes, MemoryChange

LATER_BIRTHS = 2
"""Requests during which another thread may still hold what it no longer uses."""


class AllocationMarks(TechniqueHooks):
    """Marks passes, and the ends of layers, in the history of live bytes.

    ``live``: followed while set.
    """

    def __init__(self) -> None:
        self.live: LiveBytes | None = None
        self.passes: list[tuple[int, int]] = []
        self.sections: list[int] = []
        self._begun = 0

    def begin_pass(self, item: Pass) -> None:
        """Note where a pass begins."""
        self._begun = self._now()
        self.sections.append(self._begun)

    def end_pass(self, item: Pass) -> None:
        """Note where a pass ends."""
        if self.live is not None:
            self.passes.append((self._begun, self._now()))
            self.sections.append(self._now())

    @contextmanager
    def around_layer(self, layer: int, item: Pass) -> Iterator[None]:
        """Note where a layer's forward begins and ends."""
        self.sections.append(self._now())
        yield
        self.sections.append(self._now())

    def after_backward(self, layer: int, item: Pass) -> None:
        """Note where a layer's backward ends."""
        self.sections.append(self._now())

    def _now(self) -> int:
        return 0 if self.live is None else len(self.live.history)

    def trace(self) -> AllocationTrace:
        """The requests of the passes that were marked."""
        history = [] if self.live is None else self.live.history
        return allocation_trace(history, self.passes, self.sections)


class RecordingHooks(TechniqueHooks):
    """Marks passes and ends of layers in the record of this process's allocator."""

    def __init__(self, arena: CoreArena) -> None:
        self._arena = arena
        self._passes = 0

    def begin_step(self) -> None:
        """Count passes anew."""
        self._passes = 0

    def begin_pass(self, item: Pass) -> None:
        """Begin a pass."""
        self._arena.begin(self._passes)
        self._passes += 1

    def end_pass(self, item: Pass) -> None:
        """End a pass."""
        self._arena.end()

    @contextmanager
    def around_layer(self, layer: int, item: Pass) -> Iterator[None]:
        """Mark where a layer's forward begins and ends."""
        self._arena.mark()
        yield
        self._arena.mark()

    def after_backward(self, layer: int, item: Pass) -> None:
        """Mark where a layer's backward ends."""
        self._arena.mark()


def allocation_trace(
    history: Sequence[MemoryChange],
    passes: Sequence[tuple[int, int]],
    sections: Sequence[int] = (),
) -> AllocationTrace:
    """Requests of a history of live bytes.

    A storage that grows or shrinks in place is requested anew, as the allocator sees it.

    Args:
        history: changes of a step, in order.
        passes: first change of each pass, and the one after its last.
        sections: changes at which a layer begins or ends.
    """
    births: dict[int, int] = {}
    sizes: dict[int, int] = {}
    lives: dict[int, Request] = {}
    for event, change in enumerate(history):
        left = sizes.get(change.storage, 0) + change.change_bytes
        if change.storage in births:
            birth = births.pop(change.storage)
            until = event + 1 if left else event  # contents move from one place to another
            lives[birth] = Request(sizes[change.storage], birth, until)
        if left:
            births[change.storage] = event
            lives[event] = Request(left, event, len(history) + 1)
        sizes[change.storage] = left
    return _trace(lives, {*births.values()}, passes, sections)


def recorded_trace(events: Sequence[AllocatorEvent]) -> AllocationTrace:
    """Requests of an allocator's record of a step.

    What another thread frees may be freed a little later in another step: gloo's threads need a
    lock for it that the next collective holds while it makes its buffers. So it is given until
    ``LATER_BIRTHS`` more requests were made.
    """
    passes: list[tuple[int, int]] = []
    born: dict[int, int] = {}
    lives: dict[int, Request] = {}
    births = [place for place, event in enumerate(events) if event.kind == BIRTH]
    begun = 0
    for place, event in enumerate(events):
        if event.kind == BEGIN:
            begun = place
        elif event.kind == END:
            passes.append((begun, place))
        elif event.kind == BIRTH:
            born[event.storage] = place
            lives[place] = Request(event.bytes, place, len(events) + 1)
        elif event.kind in (DEATH, DEATH_ELSEWHERE) and event.storage in born:
            birth, until = born.pop(event.storage), place
            if event.kind == DEATH_ELSEWHERE:
                later = births[bisect_right(births, place) :][:LATER_BIRTHS]
                until = later[-1] + 1 if later else len(events)
            lives[birth] = lives[birth]._replace(death=until)
    sections = [n for n, e in enumerate(events) if e.kind in (BEGIN, END, MARK)]
    return _trace(lives, {*born.values()}, passes, sections)


def least_trace(traces: Sequence[AllocationTrace]) -> AllocationTrace:
    """The trace of equal steps in which nothing is released late.

    Of those with the fewest requests, each request lives as long as where it lives least.
    """
    numbered = [trace.numbered() for trace in traces]
    first = min(numbered, key=lambda trace: len(trace.requests))
    sizes = [request.bytes for request in first.requests]
    alike = [
        trace
        for trace in numbered
        if [request.bytes for request in trace.requests] == sizes
        and trace.sections == first.sections
    ]
    lives = zip(*(trace.requests for trace in alike), strict=True)
    return replace(
        first,
        requests=tuple(min(same, key=lambda request: request.death) for same in lives),
        lasting=frozenset.intersection(*(trace.lasting for trace in alike)),
    )


def _trace(
    lives: Mapping[int, Request],
    lasting: AbstractSet[int],
    passes: Sequence[tuple[int, int]],
    sections: Sequence[int],
) -> AllocationTrace:
    """The trace of requests by birth, of which ``lasting`` ones never died."""
    births = sorted(lives)
    chosen = [
        birth
        for first, end in passes
        for birth in births[bisect_left(births, first) : bisect_left(births, end)]
    ]
    marks = sorted({*sections})
    return AllocationTrace(
        requests=tuple(lives[birth] for birth in chosen),
        lasting=frozenset(n for n, birth in enumerate(chosen) if birth in lasting),
        sections=tuple(marks),
        passes=tuple(bisect_left(marks, first) for first, _ in passes),
    )
