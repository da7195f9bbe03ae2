"""One stage's step: its passes in order, how long each takes, and when each started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..spec.passes import Pass
from .memory import PassKind
from .pass_time import PASS_TERMS, PassTime

Together = tuple[PassKind, ...]
"""Passes that start together: one, or an overlapping pair."""


def together(order: tuple[Pass, ...]) -> Iterator[tuple[Pass, ...]]:
    """The passes of an order, those that overlap as pairs."""
    items = iter(order)
    for item in items:
        yield (item, next(items)) if item.overlaps else (item,)


def kind_of(item: Pass, last_micro_batch: int) -> PassKind:
    """What the time and memory of a pass depend on."""
    first, last = item.micro_batch == 0, item.micro_batch == last_micro_batch
    return PassKind(item.forward, item.chunk, first, last, item.part)


def count_kinds(order: tuple[Pass, ...], last_micro_batch: int) -> dict[Together, int]:
    """How often a stage runs each kind of pass, or of overlapping pair."""
    return Counter(
        tuple(kind_of(item, last_micro_batch) for item in items) for items in together(order)
    )


@dataclass(slots=True)
class StageRun:
    """One stage's step: when each pass started, work by term.

    ``times`` are those of kinds of passes, ``pair_times`` of kinds that overlap. ``message_s``
    is what its stream lost to messages: waiting for one under way, or sending. ``reach`` is how
    many link levels of ``group`` its rank groups cross.
    """

    stage: int
    order: tuple[Pass, ...]
    counts: dict[Together, int]
    times: dict[PassKind, PassTime]
    group: str
    reach: int
    pair_times: dict[Together, PassTime] = field(default_factory=dict)
    starts_s: list[float] = field(default_factory=list)
    message_s: float = 0.0
    end_s: float = 0.0
    tensor_sums_s: float = 0.0
    tied_sum_s: float = 0.0
    update_s: float = 0.0
    gathers_s: float = 0.0

    def time_of(self, kinds: Together) -> PassTime:
        """Seconds of a pass, or of two that overlap."""
        return self.times[kinds[0]] if len(kinds) == 1 else self.pair_times[kinds]

    def _work(self) -> Iterator[tuple[int, PassTime]]:
        return ((count, self.time_of(kinds)) for kinds, count in self.counts.items())

    @property
    def ready_s(self) -> float:
        """When the stage comes to the norm that all wait for."""
        return self.end_s + self.tensor_sums_s + self.tied_sum_s

    @property
    def busy_s(self) -> float:
        """Seconds of passes."""
        return sum(count * time.time_s for count, time in self._work())

    def terms_s(self) -> list[float]:
        """Seconds of the passes by term, as PASS_TERMS."""
        total = [0.0] * len(PASS_TERMS)
        for count, time in self._work():
            for number, seconds in enumerate(time.terms_s):
                total[number] += count * seconds
        return total

    @property
    def measured_share(self) -> float:
        """Share of the layers' kernel and collective seconds that rests on measurements."""
        priced_s = sum(count * time.priced_s for count, time in self._work())
        measured_s = sum(count * time.measured_s for count, time in self._work())
        return measured_s / priced_s if priced_s else 0.0
