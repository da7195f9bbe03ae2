"""A step event by event: every span of every pass on its stream, and every message.

Each rank has a stream of kernels, one of collectives inside layers, one of sharding's traffic and
one of messages in each direction; each runs its spans in order, one at a time.
:mod:`pipeline_timing` goes
pass by pass instead and takes as long, which the tests hold it to, with one difference: a message
that leaves before the one ahead of it has arrived waits for it here, and there does not. That
takes messages longer than the passes that send them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..lowering.stage_passes import PassKind
from .overlapped_passes import PAIRED_KINDS
from .pass_order import pass_order
from .pass_spans import PassSpan, pass_spans
from .pipeline_timing import MessageTimes, timing_of
from .simulator import Simulation, Simulator
from .stage_run import StageRun

FORWARD_MESSAGES, BACKWARD_MESSAGES = 3, 4
STREAMS = ("compute", "collectives", "sharding", "messages forward", "messages backward")
Template = tuple[PassSpan, ...]
SecondsArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class EventSpans:
    """Every span of a step, shapes (spans,): where, when, how long (seconds)."""

    stages: NDArray[np.int64]
    streams: NDArray[np.int64]
    starts_s: SecondsArray
    durations_s: SecondsArray

    @property
    def events(self) -> int:
        """Starts and ends."""
        return 2 * len(self.starts_s)

    def overlap_s(self) -> float:
        """The longest time that two spans of one stream run at once: 0 but for rounding."""
        order = np.lexsort((self.starts_s, self.streams, self.stages))
        starts_s, ends_s = self.starts_s[order], (self.starts_s + self.durations_s)[order]
        stream = (self.stages * len(STREAMS) + self.streams)[order]
        same = stream[1:] == stream[:-1]
        return float(np.max((ends_s[:-1] - starts_s[1:])[same], initial=0.0))


def simulate_events(simulator: Simulator, plan: Plan) -> tuple[Simulation, EventSpans]:
    """One step of a legal plan, span by span; its end as in ``Simulator.run``.

    Args:
        simulator: of the plan's model, workload, stack and machine.
        plan: the plan.

    Raises:
        InputError: more passes than can be simulated, or passes that overlap in pairs.
    """
    kind, untimed_runs = plan.program.schedule.kind, simulator.untimed_runs(plan)
    if kind in PAIRED_KINDS and plan.program.schedule.actions is None:
        raise InputError("schedule.kind", kind, "one whose passes do not overlap in pairs")
    if untimed_runs is None:
        raise RuntimeError("a simulation without a limit ends")
    chunks, runs = untimed_runs
    known: dict[tuple[object, ...], Template] = {}
    templates = []
    for run in runs:
        found = []
        for each in run.passes.kinds:
            held = run.class_of(each)
            chunk = held.chunks[each.chunk]
            key = (chunk.layer_ids, each._replace(chunk=0), held.group, held.link_span)
            if key not in known:
                pricer = simulator.prices.at(held.group, held.link_span)
                known[key] = pass_spans(chunk, each, pricer)
            found.append(known[key])
        templates.append(found)
    spans = _run_events(runs, MessageTimes(plan, chunks, simulator.prices), templates)
    return simulator.finish(plan, chunks, runs), spans


def _run_events(
    runs: list[StageRun], messages: MessageTimes, templates: list[list[Template]]
) -> EventSpans:
    """Lay out every pass once what it waits for is laid out; fills in ``runs``."""
    chunks = messages.positions // messages.stages
    shape = (messages.kind, messages.stages, chunks, messages.micro_batches, messages.lines)
    order = pass_order(*shape)
    sides = [_RankStreams(run, messages, found) for run, found in zip(runs, templates, strict=True)]
    kinds = [(side, row) for side in sides for row in range(len(side.run.passes.kinds))]
    arrivals_s = [0.0]  # of the message that passes without one wait for
    for number, source in zip(order.kinds.tolist(), order.sources[0].tolist(), strict=True):
        side, row = kinds[number]
        arrivals_s.append(side.run_pass(row, arrivals_s[source]))
    for side in sides:
        side.close()
    laid = [side.laid() for side in sides]
    return EventSpans(
        stages=np.repeat(np.arange(len(sides)), [len(side.starts_s) for side in sides]),
        streams=np.concatenate([streams for streams, _ in laid]).astype(np.int64),
        starts_s=np.concatenate([np.array(side.starts_s) for side in sides]),
        durations_s=np.concatenate([seconds for _, seconds in laid]),
    )


class _RankStreams:
    """The streams of one stage's representative rank, and the spans laid on them so far."""

    def __init__(self, run: StageRun, messages: MessageTimes, templates: list[Template]) -> None:
        self.run = run
        self.starts_s: list[float] = []
        self._free_s = [0.0] * len(STREAMS)
        self._clock_s = 0.0
        self._blocking = messages.blocking
        self._rows: list[int] = []
        self._templates = templates
        self._messages = [_message(run, messages, kind) for kind in run.passes.kinds]
        self._timings = [timing_of(run, messages, kind) for kind in run.passes.kinds]

    def run_pass(self, row: int, arrival_s: float) -> float:
        """Lay out a pass of kind ``row`` whose input arrives then; when its own message does."""
        free_s, starts_s = self._free_s, self.starts_s
        begins_s = max(arrival_s, self._clock_s)
        self._note(row, begins_s)
        ends_s = [begins_s]
        for stream, seconds, after, also in self._templates[row]:
            start_s = free_s[stream]
            if ends_s[after] > start_s:
                start_s = ends_s[after]
            if ends_s[also] > start_s:
                start_s = ends_s[also]
            starts_s.append(start_s)
            end_s = free_s[stream] = start_s + seconds
            ends_s.append(end_s)
        self._clock_s = done_s = max(ends_s)
        return self._send(row, done_s)

    def _send(self, row: int, done_s: float) -> float:
        """The message of a pass that is done then, if it sends one; when it arrives."""
        message = self._messages[row]
        if message is None:
            return done_s
        start_s = max(done_s, self._free_s[message.stream])
        self.starts_s.append(start_s)
        end_s = self._free_s[message.stream] = start_s + message.seconds
        if self._blocking:
            self._clock_s = end_s
        return end_s

    def _note(self, row: int, begins_s: float) -> None:
        """What the run keeps of a pass: when it starts, what messages took of its time."""
        _, travel_s, sends_s = self._timings[row]
        self.run.message_s += min(begins_s - self._clock_s, travel_s) + sends_s
        self.run.starts_s.append(begins_s)
        self._rows.append(row)

    def close(self) -> None:
        """All passes are laid out."""
        self.run.end_s = self._clock_s

    def laid(self) -> tuple[SecondsArray, SecondsArray]:
        """Streams and seconds of every span in order, shapes (spans,)."""
        each = []
        for template, message in zip(self._templates, self._messages, strict=True):
            spans = template if message is None else (*template, message)
            each.append(np.array([span[:2] for span in spans]))
        streams, seconds = np.concatenate([each[row] for row in self._rows]).T
        return streams, seconds


def _message(run: StageRun, messages: MessageTimes, kind: PassKind) -> PassSpan | None:
    """The message that a pass sends once it is done, if it sends one."""
    if kind.part == "weight":
        return None
    seconds = messages.seconds(kind.forward, messages.position(run.stage, kind.chunk))
    stream = FORWARD_MESSAGES if kind.forward else BACKWARD_MESSAGES
    return PassSpan(stream, seconds) if seconds else None
