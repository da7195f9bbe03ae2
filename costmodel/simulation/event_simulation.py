"""Discrete-event simulation of a step: every span of every pass, and every message.

Each rank has a stream of kernels, one of collectives inside layers, one of sharding traffic, one of
messages per direction and the lanes of techniques; each runs its spans in order, one at a time.
:mod:`pipeline_timing` goes pass by pass and gives the same times, as tests check, with one
difference: a message sent before the previous one has arrived waits for it here, and not there.
That takes messages longer than the passes that send them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..arrays import Floats
from ..lowering.stage_passes import PassKind
from ..symbolic.lane_work import LANES
from .overlapped_passes import PAIRED_KINDS
from .pass_order import pass_order
from .pass_spans import PassSpan, PassSpans, pass_spans
from .pipeline_timing import MessageTimes, timing_of
from .simulator import Simulation, Simulator
from .stage_run import StageRun

FORWARD_MESSAGES, BACKWARD_MESSAGES = 3, 4
STREAMS = ("compute", "collectives", "sharding", "messages forward", "messages backward", *LANES)


@dataclass(frozen=True, slots=True, eq=False)
class EventSpans:
    """Every span of a step, shapes (spans,): stage, stream, start and duration (seconds)."""

    stages: NDArray[np.int64]
    streams: NDArray[np.int64]
    starts_s: Floats
    durations_s: Floats

    @property
    def events(self) -> int:
        """Number of starts and ends."""
        return 2 * len(self.starts_s)

    def overlap_s(self) -> float:
        """Longest overlap of two spans of one stream: 0 but for rounding."""
        order = np.lexsort((self.starts_s, self.streams, self.stages))
        starts_s, ends_s = self.starts_s[order], (self.starts_s + self.durations_s)[order]
        stream = (self.stages * len(STREAMS) + self.streams)[order]
        same = stream[1:] == stream[:-1]
        return float(np.max((ends_s[:-1] - starts_s[1:])[same], initial=0.0))


def simulate_events(simulator: Simulator, plan: Plan) -> tuple[Simulation, EventSpans]:
    """Simulate one step of a legal plan span by span.

    Its end is as in ``Simulator.run``.

    Args:
        simulator: of the plan's model, workload, stack and machine.
        plan: the plan.

    Raises:
        InputError: more passes than can be simulated, or passes that overlap in pairs.
    """
    schedule_kind, untimed_runs = plan.program.schedule.kind, simulator.untimed_runs(plan)
    if schedule_kind in PAIRED_KINDS and plan.program.schedule.actions is None:
        raise InputError("schedule.kind", schedule_kind, "one whose passes do not overlap in pairs")
    if untimed_runs is None:
        raise RuntimeError("a simulation without a limit ends")
    chunks, runs = untimed_runs
    cache: dict[tuple[object, ...], PassSpans] = {}
    templates = []
    for run in runs:
        stage_templates = []
        for kind in run.passes.kinds:
            rank_class = run.class_of(kind)
            chunk = rank_class.chunks[kind.chunk]
            key = (chunk.layer_ids, kind._replace(chunk=0), rank_class.group, rank_class.link_span)
            if key not in cache:
                pricer = simulator.prices.at(rank_class.group, rank_class.link_span)
                cache[key] = pass_spans(chunk, kind, pricer)
            stage_templates.append(cache[key])
        templates.append(stage_templates)
    spans = _run_events(runs, MessageTimes(plan, chunks, simulator.prices), templates)
    return simulator.finish(plan, chunks, runs), spans


def _run_events(
    runs: list[StageRun], messages: MessageTimes, templates: list[list[PassSpans]]
) -> EventSpans:
    """Place every pass once its inputs are placed; fills in ``runs``."""
    chunks = messages.positions // messages.stages
    shape = (messages.kind, messages.stages, chunks, messages.micro_batches, messages.lines)
    order = pass_order(*shape)
    rank_streams = [
        _RankStreams(run, messages, stage_templates)
        for run, stage_templates in zip(runs, templates, strict=True)
    ]
    kinds = [
        (stream, row) for stream in rank_streams for row in range(len(stream.run.passes.kinds))
    ]
    arrivals_s = [0.0]  # arrival for passes that wait for no message
    for number, source in zip(order.kinds.tolist(), order.sources[0].tolist(), strict=True):
        stream, row = kinds[number]
        arrivals_s.append(stream.run_pass(row, arrivals_s[source]))
    for stream in rank_streams:
        stream.close()
    placed = [stream.stream_seconds() for stream in rank_streams]
    return EventSpans(
        stages=np.repeat(
            np.arange(len(rank_streams)), [len(stream.starts_s) for stream in rank_streams]
        ),
        streams=np.concatenate([streams for streams, _ in placed]).astype(np.int64),
        starts_s=np.concatenate([np.array(stream.starts_s) for stream in rank_streams]),
        durations_s=np.concatenate([seconds for _, seconds in placed]),
    )


class _RankStreams:
    """Streams of one stage's representative rank, and the spans placed on them."""

    def __init__(self, run: StageRun, messages: MessageTimes, templates: list[PassSpans]) -> None:
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
        """Place a pass of kind ``row``; returns its message's arrival."""
        free_s, starts_s = self._free_s, self.starts_s
        begins_s = max(arrival_s, self._clock_s)
        self._note(row, begins_s)
        ends_s = [begins_s]
        template = self._templates[row]
        for stream, seconds, after, also in template.spans:
            start_s = free_s[stream]
            if ends_s[after] > start_s:
                start_s = ends_s[after]
            if ends_s[also] > start_s:
                start_s = ends_s[also]
            starts_s.append(start_s)
            end_s = free_s[stream] = start_s + seconds
            ends_s.append(end_s)
        self._clock_s = max(ends_s)
        return self._send(row, ends_s[template.output])

    def _send(self, row: int, done_s: float) -> float:
        message = self._messages[row]
        if message is None:
            return done_s
        start_s = max(done_s, self._free_s[message.stream])
        self.starts_s.append(start_s)
        end_s = self._free_s[message.stream] = start_s + message.seconds
        if self._blocking:
            self._clock_s = max(self._clock_s, end_s)
        return end_s

    def _note(self, row: int, begins_s: float) -> None:
        _, travel_s, sends_s = self._timings[row]
        sends_s -= self.run.times[self.run.passes.kinds[row]].tail_s
        self.run.message_s += min(begins_s - self._clock_s, travel_s) + max(0.0, sends_s)
        self.run.starts_s.append(begins_s)
        self._rows.append(row)

    def close(self) -> None:
        self.run.end_s = self._clock_s

    def stream_seconds(self) -> tuple[Floats, Floats]:
        """Streams and seconds of every span in order, shapes (spans,)."""
        by_kind = []
        for template, message in zip(self._templates, self._messages, strict=True):
            spans = template.spans if message is None else (*template.spans, message)
            by_kind.append(np.array([span[:2] for span in spans]))
        streams, seconds = np.concatenate([by_kind[row] for row in self._rows]).T
        return streams, seconds


def _message(run: StageRun, messages: MessageTimes, kind: PassKind) -> PassSpan | None:
    if kind.part == "weight":
        return None
    seconds = messages.seconds(kind.forward, messages.position(run.stage, kind.chunk))
    stream = FORWARD_MESSAGES if kind.forward else BACKWARD_MESSAGES
    return PassSpan(stream, seconds) if seconds else None
