"""A launcher's view of its ranks, and diagnosis of the broken one.

One broken rank soon fails its peers with connection errors and timeouts, so the cause is chosen by
kind: a death before an exception, an exception before silence, silence before a timeout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...spec.errors import RunError
from .progress import JOINING
from .timeouts import CPU_TIMEOUTS

IDLE_CPU_SHARE = 0.05
"""A rank that uses less of a core than this between two heartbeats is waiting."""
MIN_CPU_S = 0.05
"""A process that worked less than this since the last look may do nothing at all."""
SLOW_BEATS, SLOW_SHARE = 20, 0.4
"""Heartbeats, and the excess share of them in which the peers of a slow rank waited."""
NCCL_TIMEOUT = "Watchdog caught collective operation timeout"
"""First words of NCCL's watchdog when it ends a process whose peers are late."""
MAX_MESSAGE_CHARS = 160

RankStatus = Literal["starting", "idle", "running", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Cause of a job's end: one line, and its exit code."""

    message: str
    exit_code: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An exception that a rank reported before it ended.

    ``communication``: an error that a broken peer causes (closed connection, timeout). ``plain``:
    the message is complete and meant for the user.
    """

    message: str
    exit_code: int
    communication: bool
    plain: bool


@dataclass(slots=True)
class RankState:
    """A rank seen from outside; times are on the launcher's monotonic clock."""

    state: RankStatus = "starting"
    heard_s: float = 0.0
    heartbeat_s: float = 0.0
    active_s: float = 0.0
    count: int = -1
    where: str = "starting"
    cpu_s: float = 0.0
    noted_cpu_s: float = 0.0
    waits: bool = False
    beats: int = 0
    waited: int = 0
    is_slow: bool = False
    report: Report | None = None
    ending: str | None = None
    stopped: bool = False
    error_tail: str = ""


@dataclass(slots=True)
class Watchdog:
    """States and limits, in seconds, of all ranks."""

    ranks: int
    silent_after_s: float
    stalled_after_s: float
    missing_after_s: float = CPU_TIMEOUTS.join_s
    states: list[RankState] = field(init=False)

    def __post_init__(self) -> None:
        self.states = [RankState() for _ in range(self.ranks)]

    def begin(self, state: RankStatus, where: str, now_s: float) -> None:
        """Begin an operation on all ranks; earlier silence does not count."""
        for rank in self.states:
            rank.state, rank.where = state, where
            rank.heard_s = rank.heartbeat_s = rank.active_s = now_s
            rank.beats = rank.waited = 0
            rank.is_slow = False

    def skip_gap(self, gap_s: float) -> None:
        """Discount ``gap_s`` in which the launcher itself was suspended."""
        for rank in self.states:
            rank.heard_s += gap_s
            rank.heartbeat_s += gap_s
            rank.active_s += gap_s

    def heard(self, rank: int, now_s: float) -> None:
        """Note a message from a rank."""
        self.states[rank].heard_s = now_s

    def beat(self, rank: int, now_s: float, beat: Mapping[str, object]) -> None:
        """Note a heartbeat: state, busy time, waiting for others or not."""
        state = self.states[rank]
        count, cpu_s = int(str(beat["count"])), float(str(beat["cpu_s"]))
        elapsed_s = max(now_s - state.heartbeat_s, 1e-3)
        if count != state.count or cpu_s - state.cpu_s > IDLE_CPU_SHARE * elapsed_s:
            state.active_s = now_s
        state.count, state.cpu_s, state.where = count, cpu_s, str(beat["where"])
        state.waits = bool(beat.get("waits", False))
        if state.state == "running":
            state.beats += 1
            state.waited += state.waits
        state.heard_s = state.heartbeat_s = now_s

    def note_cpu(self, rank: int, now_s: float, busy_s: float) -> None:
        """Note work seen from outside; busy processes may not beat."""
        state = self.states[rank]
        if busy_s - state.noted_cpu_s > MIN_CPU_S:
            state.noted_cpu_s, state.active_s = busy_s, now_s

    def missing(self, now_s: float) -> list[int]:
        """Joining ranks without a sign of life for too long.

        One that waits for the others only has to keep beating.
        """
        limit_s = self.missing_after_s
        return [
            number
            for number, state in enumerate(self.states)
            if state.state == "starting"
            and now_s - state.active_s > limit_s
            and (state.where != JOINING or now_s - state.heartbeat_s > limit_s)
        ]

    def silent(self, now_s: float) -> list[int]:
        """Running ranks without a message for too long."""
        return [
            number
            for number, state in enumerate(self.states)
            if state.state == "running" and now_s - state.heard_s > self.silent_after_s
        ]

    def stalled(self, now_s: float) -> bool:
        """True if every running rank has waited too long."""
        running = [state for state in self.states if state.state == "running"]
        return bool(running) and all(
            now_s - state.active_s > self.stalled_after_s for state in running
        )

    def new_stragglers(self, peers: Sequence[Sequence[int]]) -> list[str]:
        """Notes on ranks that delay their stage, each once.

        Ranks of one stage do equal work, so one that hardly ever waits while all its peers often do
        is slower. Waits between stages are the plan's doing.
        """
        notes = []
        for ranks in peers:
            states = [self.states[rank] for rank in ranks]
            if len(states) < 2 or min(state.beats for state in states) < SLOW_BEATS:
                continue
            shares = [state.waited / state.beats for state in states]
            for position, (rank, state) in enumerate(zip(ranks, states, strict=True)):
                others = min(shares[:position] + shares[position + 1 :])
                if others - shares[position] >= SLOW_SHARE and not state.is_slow:
                    state.is_slow = True
                    note = f"rank {rank} is slow: the others of its stage wait for it"
                    notes.append(
                        f"{note} {others:.0%} of the time, it waits {shares[position]:.0%}"
                    )
            for state in states:
                state.beats = state.waited = 0
        return notes

    def broken(self) -> bool:
        """True if any rank has failed or ended."""
        return any(state.report or state.ending for state in self.states)

    def has_root_cause(self) -> bool:
        """True if a known failure is not explained by another rank's."""
        return any(
            (state.report and not state.report.communication) or (state.ending and not state.report)
            for state in self.states
        )

    def diagnose(self, now_s: float) -> Failure:
        """The broken rank and its failure, in one line."""
        return (
            self._died()
            or self._raised()
            or self._did_not_join(now_s)
            or self._went_silent(now_s)
            or self._waited()
            or self._stuck()
        )

    def _stuck(self) -> Failure:
        running = [n for n, state in enumerate(self.states) if state.state == "running"]
        missing = [number for number in running if not self.states[number].waits]
        if missing and len(missing) < len(running):
            where = self.states[missing[0]].where
            others = [number for number in range(self.ranks) if number != missing[0]]
            message = f"rank {missing[0]} hangs in {where}, and the others wait for it"
            return Failure(message=f"{message}: {self._locations(others)}")
        return Failure(message=f"no rank makes progress: {self._locations(range(self.ranks))}")

    def _died(self) -> Failure | None:
        for number, state in enumerate(self.states):
            if state.ending and not state.report:
                killed = "SIGKILL" in state.ending
                hint = " (perhaps by the system, for want of memory)" if killed else ""
                tail = f"; its last output: {state.error_tail}" if state.error_tail else ""
                message = f"rank {number} {state.ending} in {state.where}{hint}{tail}"
                return Failure(message=message)
        return None

    def _raised(self) -> Failure | None:
        for number, state in enumerate(self.states):
            report = state.report
            if report is not None and not report.communication:
                if report.plain:
                    return Failure(message=report.message, exit_code=report.exit_code)
                return Failure(message=f"rank {number} failed in {state.where}: {report.message}")
        return None

    def _did_not_join(self, now_s: float) -> Failure | None:
        missing = self.missing(now_s)
        if not missing:
            return None
        state = self.states[missing[0]]
        what = "it is stopped" if state.stopped else "it does nothing"
        message = f"rank {missing[0]} did not join the others: {what}, in {state.where}"
        silence = f"for {now_s - state.active_s:.0f} s"
        more = f"; nor did ranks {', '.join(map(str, missing[1:]))}" if missing[1:] else ""
        return Failure(message=f"{message}, {silence}{more}")

    def _went_silent(self, now_s: float) -> Failure | None:
        frozen = [n for n, state in enumerate(self.states) if state.stopped and not state.report]
        silent = frozen or self.silent(now_s)
        if not silent:
            return None
        number = silent[0]
        state = self.states[number]
        what = "is stopped" if state.stopped else "does not answer"
        silence = f"no heartbeat for {now_s - state.heard_s:.0f} s, last in {state.where}"
        return Failure(message=f"rank {number} {what}: {silence}")

    def _waited(self) -> Failure | None:
        waiting = [n for n, state in enumerate(self.states) if state.report]
        if not waiting:
            return None
        report = self.states[waiting[0]].report
        others = [n for n in range(self.ranks) if n not in waiting]
        locations = f"; {self._locations(others)}" if others else ""
        reason = report.message if report else ""
        where = self.states[waiting[0]].where
        return Failure(
            message=f"rank {waiting[0]} waited in vain for other ranks in {where} ({reason})"
            f"{locations}"
        )

    def _locations(self, numbers: range | list[int]) -> str:
        locations = []
        for number in numbers:
            state = self.states[number]
            text = "has finished its part" if state.state == "done" else f"is in {state.where}"
            locations.append(f"rank {number} {text}")
        return ", ".join(locations)


def late_report(line: str) -> Report | None:
    """Report of a rank that NCCL aborted because its peers were late.

    ``line``: NCCL's report in its error output; empty if none.
    """
    if not line:
        return None
    message = line[line.index(NCCL_TIMEOUT) :].split(".", 1)[0][:MAX_MESSAGE_CHARS]
    return Report(message=message, exit_code=RunError.exit_code, communication=True, plain=False)
