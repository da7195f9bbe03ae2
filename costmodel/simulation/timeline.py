"""A simulated step as a Timeline: spans of every stage's streams, and messages.

Passes are shown term by term for each layer where that gives a readable number of spans, and
otherwise as one span per term for the whole pass. Sharding traffic and lanes are cut where they
change from exposed to overlapped. What techniques show of a layer stands beside its terms, on
streams of its own, as long as there are not too many spans.
"""

from __future__ import annotations

from ...spec.report.overlap import EXPOSED, cut, overlapped_term, union
from ...spec.report.timeline import Flow, Span, Stream, StreamKind, Timeline
from ...spec.schedules.passes import Pass
from ..lowering.stage_passes import ConcurrentPasses, PassKind, concurrent_groups, kind_of
from .pass_time import PassSegment, pass_time, terms_with_techniques
from .simulator import Simulation, Simulator
from .stage_run import StageRun

MAX_DETAILED_SPANS = 200_000
ROUNDING = 1e-9
STREAMS: dict[str, StreamKind] = {
    "compute": "compute",
    "tp": "communication",
    "cp": "communication",
    "ep": "communication",
    "dp": "communication",
    "wire": "communication",
    "to_host": "host_copy",
    "to_device": "host_copy",
    "drive_read": "nvme",
    "drive_write": "nvme",
    "host": "host",
}
IN_LAYERS = ("compute", "tp", "cp", "ep")
"""Streams whose work never runs beside another of a layer."""
PassSegments = dict[ConcurrentPasses, list[PassSegment]]


def simulated_timeline(
    simulation: Simulation, simulator: Simulator, most_spans: int = MAX_DETAILED_SPANS
) -> Timeline:
    """The timeline of a simulation; a span's rank is its stage's number.

    Args:
        simulation: of a plan.
        simulator: that made it.
        most_spans: with more of them, techniques' own lanes are left out.
    """
    detail = _span_count(simulation) <= MAX_DETAILED_SPANS
    spans: list[Span] = []
    firsts: dict[tuple[bool, int, int], tuple[int, int]] = {}
    by_stage = [
        {kinds: _segments(simulation, simulator, run, kinds, detail) for kinds in run.counts}
        for run in simulation.stages
    ]
    if _segment_count(simulation, by_stage) > most_spans:
        by_stage = [_without_own(segments) for segments in by_stage]
    for run, segments in zip(simulation.stages, by_stage, strict=True):
        last = max(item.micro_batch for item in run.order)
        starts = iter(run.starts_s)
        for items in concurrent_groups(run.order):
            start_s, *_ = (next(starts) for _ in items)
            first = len(spans)
            kinds = tuple(kind_of(item, last) for item in items)
            spans += _spans(run.stage, segments[kinds], start_s, items)
            time = run.time_of(kinds)
            output = _last_before(spans, first, start_s + time.time_s - time.tail_s)
            for item in items:
                if item.part != "weight":
                    position = simulation.position(run.stage, item.chunk)
                    firsts[item.forward, position, item.micro_batch] = (first, output)
        spans += _step_end_spans(simulation, run)
    return Timeline(origin="simulated", spans=tuple(spans), flows=_flows(firsts, spans))


def _segment_count(simulation: Simulation, by_stage: list[PassSegments]) -> int:
    """Spans of all passes."""
    return sum(
        count * len(segments[kinds])
        for run, segments in zip(simulation.stages, by_stage, strict=True)
        for kinds, count in run.counts.items()
    )


def _without_own(segments: PassSegments) -> PassSegments:
    return {kinds: [s for s in pieces if not s.own] for kinds, pieces in segments.items()}


def _last_before(spans: list[Span], first: int, output_s: float) -> int:
    """The last span of a pass that its message waits for."""
    latest_s = output_s * (1 + ROUNDING)
    numbers = (n for n in range(first, len(spans)) if spans[n].stream.kind != "technique")
    return max((n for n in numbers if spans[n].end_s <= latest_s), default=first)


def _span_count(simulation: Simulation) -> int:
    return sum(
        6 * len(run.order) * max(len(chunk.layers) for chunk in chunks)
        for run, chunks in zip(simulation.stages, simulation.chunks, strict=True)
    )


def _segments(
    simulation: Simulation,
    simulator: Simulator,
    run: StageRun,
    kinds: ConcurrentPasses,
    detail: bool,
) -> list[PassSegment]:
    """Pieces of a pass; overlapping passes as joint work and waiting."""
    kind = kinds[0]
    if detail and len(kinds) == 1:
        rank_class = run.class_of(kind)
        pricer = simulator.prices.at(rank_class.group, rank_class.link_span)
        return _cut(pass_time(rank_class.chunks[kind.chunk], kind, pricer, detail=True).segments)
    name = " + ".join(f"chunk {k.chunk} {_letter(k)}" for k in kinds)
    clock_s, segments = 0.0, []
    for term, seconds in terms_with_techniques(run.time_of(kinds)):
        if seconds > 0:
            stream = term.removeprefix("exposed_") if term.startswith("exposed_") else "compute"
            segments.append(PassSegment(stream, name, clock_s, seconds, term))
            clock_s += seconds
    return segments


def _cut(segments: list[PassSegment]) -> list[PassSegment]:
    """Pieces of a pass, those of traffic and lanes cut into exposed and overlapped parts.

    Traffic on a technique's own lanes is cut by its other spans.
    """
    kept = [s for s in segments if _is_work(s)]
    busy, own_busy = (
        union((s.start_s, s.start_s + s.duration_s) for s in kept if s.own == own)
        for own in (False, True)
    )
    pieces: list[PassSegment] = []
    for segment in segments:
        if _is_work(segment):
            pieces.append(segment)
            continue
        whole = (segment.start_s, segment.start_s + segment.duration_s)
        for start_s, end_s, is_overlapped in cut(whole, own_busy if segment.own else busy):
            term = overlapped_term(segment.term) if is_overlapped else segment.term
            part = segment._replace(start_s=start_s, duration_s=end_s - start_s, term=term)
            pieces.append(part)
    return pieces


def _is_work(segment: PassSegment) -> bool:
    """True for what traffic and lanes may hide beside."""
    if segment.own:
        return not segment.term.startswith(EXPOSED)
    return segment.stream in IN_LAYERS


def _letter(kind: PassKind) -> str:
    return "F" if kind.forward else "W" if kind.part == "weight" else "B"


def _spans(
    stage: int, segments: list[PassSegment], start_s: float, items: tuple[Pass, ...]
) -> list[Span]:
    numbers = " + ".join(str(item.micro_batch) for item in items)
    return [
        Span(
            stream=Stream(
                rank=stage, kind="technique" if s.own else STREAMS[s.stream], name=s.stream
            ),
            name=f"{s.name} mb {numbers}",
            start_s=start_s + s.start_s,
            duration_s=s.duration_s,
            term=s.term,
        )
        for s in segments
    ]


def _step_end_spans(simulation: Simulation, run: StageRun) -> list[Span]:
    """Pending reductions, the global norm, and the update."""
    wire = Stream(rank=run.stage, kind="communication", name="world")
    compute = Stream(rank=run.stage, kind="compute", name="compute")
    host = Stream(rank=run.stage, kind="host", name="host")
    reduced_s = run.end_s + run.reductions_s
    summed_s = reduced_s + run.pending_reductions_s
    device_s = run.update_s - run.update_beside_s
    pieces = [
        (wire, "reductions", run.end_s, run.reductions_s, "exposed_dp"),
        (wire, "open sums", reduced_s, run.pending_reductions_s, "exposed_tp"),
        (wire, "tied sum", summed_s, run.tied_reduction_s, "exposed_pp"),
        (wire, "norm", simulation.barrier_s - simulation.norm_s, simulation.norm_s, "optimizer"),
        (compute, "update", simulation.barrier_s, device_s, "optimizer"),
        (wire, "gathers", simulation.barrier_s + run.update_s, run.gathers_s, "exposed_dp"),
        (host, "step", simulation.step_time_s - simulation.host_s, simulation.host_s, "host"),
    ]
    return [
        Span(stream=stream, name=name, start_s=start_s, duration_s=duration_s, term=term)
        for stream, name, start_s, duration_s, term in pieces
        if duration_s > 0
    ] + [
        *_update_lane_spans(simulation, run, device_s),
        *_step_lane_spans(simulation, run),
    ]


def _update_lane_spans(simulation: Simulation, run: StageRun, device_s: float) -> list[Span]:
    """Lanes beside the update, cut where the device's own work ends."""
    spans = []
    for work in run.update_lanes:
        whole = (work.start_s, work.start_s + work.seconds)
        for start_s, end_s, is_overlapped in cut(whole, [(0.0, device_s)]):
            spans.append(
                Span(
                    stream=Stream(rank=run.stage, kind=STREAMS[work.lane], name=work.lane),
                    name=f"update {work.technique}",
                    start_s=simulation.barrier_s + start_s,
                    duration_s=end_s - start_s,
                    term=overlapped_term(work.technique) if is_overlapped else work.technique,
                )
            )
    return spans


def _step_lane_spans(simulation: Simulation, run: StageRun) -> list[Span]:
    """Lanes beside the whole step: a step's share from its start on, cut where the update ends."""
    spans: list[Span] = []
    free_s: dict[str, float] = {}
    end_s = simulation.barrier_s + run.update_s - run.update_beside_s
    for work in run.step_lanes:
        start_s = free_s.get(work.lane, 0.0)
        free_s[work.lane] = start_s + work.seconds
        for first_s, last_s, is_overlapped in cut((start_s, free_s[work.lane]), [(0.0, end_s)]):
            spans.append(
                Span(
                    stream=Stream(rank=run.stage, kind=STREAMS[work.lane], name=work.lane),
                    name=f"step {work.technique}",
                    start_s=first_s,
                    duration_s=last_s - first_s,
                    term=overlapped_term(work.technique) if is_overlapped else work.technique,
                )
            )
    return spans


def _flows(
    passes: dict[tuple[bool, int, int], tuple[int, int]], spans: list[Span]
) -> tuple[Flow, ...]:
    """Arrows from the span with a pass's output to its receiver's first."""
    flows = []
    for (forward, position, micro_batch), (first, _) in passes.items():
        source = passes.get((forward, position + (-1 if forward else 1), micro_batch))
        if source is not None and spans[source[1]].stream.rank != spans[first].stream.rank:
            flows.append(Flow(source=source[1], target=first))
    return tuple(flows)
