"""One stage's step: passes in order, their durations and start times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...spec.schedules.passes import Pass
from ..lowering.stage_passes import ConcurrentPasses, PassKind, StagePasses
from ..symbolic.lane_work import Lane
from .lane_clocks import ChainedLaneWork
from .pass_time import PASS_TERMS, PassTime, sum_by_name
from .rank_class import RankClass


class StepLane(NamedTuple):
    """A technique's mean seconds a step on a lane beside whole steps."""

    technique: str
    lane: Lane
    seconds: float


StepLanes = tuple[StepLane, ...]


@dataclass(slots=True)
class StageRun:
    """One stage's step: start of each pass, work by term.

    ``times`` are those of kinds of passes, ``pair_times`` of kinds that overlap, on the slowest of
    its ``classes`` of ranks; ``slowest`` gives its number where there are several. ``message_s`` is
    its stream's time lost to messages: waiting for one in flight, or sending.
    ``reductions_s``: of gradients over replicas, after all passes.
    ``update_technique_s`` of ``update_s`` are techniques', ``update_beside_s`` the time that their
    ``update_lanes`` outlast the device's own work, and what shows of ``step_lanes``.
    """

    stage: int
    passes: StagePasses
    times: dict[PassKind, PassTime]
    classes: tuple[RankClass, ...]
    slowest: dict[PassKind, int] = field(default_factory=dict)
    pair_times: dict[ConcurrentPasses, PassTime] = field(default_factory=dict)
    starts_s: list[float] = field(default_factory=list)
    message_s: float = 0.0
    end_s: float = 0.0
    reductions_s: float = 0.0
    pending_reductions_s: float = 0.0
    tied_reduction_s: float = 0.0
    update_s: float = 0.0
    gathers_s: float = 0.0
    update_technique_s: dict[str, float] = field(default_factory=dict)
    update_lanes: tuple[ChainedLaneWork, ...] = ()
    update_beside_s: float = 0.0
    step_lanes: StepLanes = ()

    def class_of(self, kind: PassKind) -> RankClass:
        """The slowest class of ranks for a kind of pass."""
        return self.classes[self.slowest.get(kind, 0)]

    @property
    def order(self) -> tuple[Pass, ...]:
        """The passes in order."""
        return self.passes.order

    @property
    def counts(self) -> dict[ConcurrentPasses, int]:
        """Runs of each kind of pass, or of overlapping pair."""
        return self.passes.counts

    def time_of(self, kinds: ConcurrentPasses) -> PassTime:
        """Seconds of a pass, or of an overlapping pair."""
        return self.times[kinds[0]] if len(kinds) == 1 else self.pair_times[kinds]

    def _work(self) -> Iterator[tuple[int, PassTime]]:
        return ((count, self.time_of(kinds)) for kinds, count in self.counts.items())

    @property
    def ready_s(self) -> float:
        """Arrival of the stage at the global norm."""
        return self.end_s + self.after_passes_s

    @property
    def after_passes_s(self) -> float:
        """Seconds of reductions after all passes."""
        return self.reductions_s + self.pending_reductions_s + self.tied_reduction_s

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

    def technique_s(self) -> dict[str, float]:
        """Seconds of techniques by name, in the passes and with the update."""
        passes = (
            [(name, count * seconds) for name, seconds in time.technique_s.items()]
            for count, time in self._work()
        )
        return sum_by_name(*passes, self.update_technique_s.items())

    def shares(self) -> tuple[float, float]:
        """Measured and learned shares of the layers' kernel and collective seconds."""
        priced_s = sum(count * time.priced_s for count, time in self._work())
        if not priced_s:
            return 0.0, 0.0
        measured_s = sum(count * time.measured_s for count, time in self._work())
        learned_s = sum(count * time.learned_s for count, time in self._work())
        return measured_s / priced_s, learned_s / priced_s
