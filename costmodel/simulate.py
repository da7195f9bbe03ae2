"""Simulating one step of a plan: every stage's passes in schedule order, messages, the update.

One representative rank a stage. A pass starts when its stage is free and its input has
arrived; a message leaves when the pass that made it ends. The stages then meet at the global
gradient norm and update. With durations fixed this is the longest path through the passes, so
it never gets shorter when any pass gets longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..datasets.catalogue.links import LinkRates
from ..spec.errors import InputError
from ..spec.groups import stage_groups
from ..spec.plan import Plan, Stage
from ..spec.report import MemoryRow
from ..spec.schedule import Pass, stage_order
from ..spec.stack import StackSpec
from .lowering import Lowering, StageChunk
from .machine import Machine
from .memory import PassKind, memory_row, stage_peak
from .overlap import exposed_beside_kernels
from .pass_time import PASS_TERMS, PassTime, pass_time
from .prices import Pricer
from .step import end_of_step

MAX_PASSES = 2**21
"""Passes, forward and backward, of one simulated step: about half a minute's work."""


def most_microbatches(stages: int, chunks: int) -> int:
    """How many micro-batches a step of so many stages and chunks may have to be simulated."""
    return max(1, MAX_PASSES // (2 * stages * chunks))


@dataclass(slots=True)
class StageRun:
    """One stage's step: when each pass started, work by term.

    ``message_s`` is what its stream lost to messages: waiting for one under way, or sending.
    ``reach`` is how many link levels its groups cross.
    """

    stage: int
    order: tuple[Pass, ...]
    times: dict[PassKind, PassTime]
    reach: int
    starts_s: list[float] = field(default_factory=list)
    message_s: float = 0.0
    end_s: float = 0.0
    tensor_sums_s: float = 0.0
    tied_sum_s: float = 0.0
    update_s: float = 0.0
    gathers_s: float = 0.0

    def counts(self) -> dict[PassKind, int]:
        """How many passes of each kind the step has."""
        micro_batches = len(self.order) // sum(kind.first for kind in self.times)
        return {k: 1 if k.first or k.last else micro_batches - 2 for k in self.times}

    @property
    def ready_s(self) -> float:
        """When the stage comes to the norm that all wait for."""
        return self.end_s + self.tensor_sums_s + self.tied_sum_s

    @property
    def busy_s(self) -> float:
        """Seconds of passes."""
        return sum(n * self.times[kind].time_s for kind, n in self.counts().items())

    def terms_s(self) -> list[float]:
        """Seconds of the passes by term, as PASS_TERMS."""
        total = [0.0] * len(PASS_TERMS)
        for kind, count in self.counts().items():
            for number, seconds in enumerate(self.times[kind].terms_s):
                total[number] += count * seconds
        return total

    @property
    def measured_share(self) -> float:
        """Share of the layers' kernel and collective seconds that rests on measurements."""
        counts = self.counts()
        priced_s = sum(n * self.times[kind].priced_s for kind, n in counts.items())
        measured_s = sum(n * self.times[kind].measured_s for kind, n in counts.items())
        return measured_s / priced_s if priced_s else 0.0


@dataclass(slots=True)
class Simulation:
    """The result of one simulated step; ``stages`` by stage number."""

    step_time_s: float
    barrier_s: float
    norm_s: float
    host_s: float
    stages: list[StageRun]
    chunks: list[tuple[StageChunk, ...]]
    memory: tuple[MemoryRow, ...]

    @property
    def critical(self) -> StageRun:
        """The stage whose compute stream is busy longest (the first on a tie)."""
        return max(self.stages, key=lambda run: (run.busy_s + run.update_s, -run.stage))


class Simulator:
    """Simulates plans of one model and workload on one machine with one stack.

    Args:
        lowering: layers and units of model, workload and stack.
        pricer: prices on the machine.
    """

    def __init__(self, lowering: Lowering, pricer: Pricer) -> None:
        self.lowering = lowering
        self.pricer = pricer
        self._passes: dict[tuple[object, ...], PassTime] = {}

    @classmethod
    def for_plan(cls, plan: Plan, machine: Machine, stack: StackSpec) -> Simulator:
        """A simulator for the plan's model and workload."""
        return cls(Lowering(plan.model, plan.workload, stack), Pricer(machine, stack))

    def run(self, plan: Plan, give_up_s: float = float("inf")) -> Simulation | None:
        """One step of a legal plan.

        Args:
            plan: the plan.
            give_up_s: None is returned where the step certainly takes at least this long.

        Raises:
            InputError: more passes than can be simulated.
        """
        program = plan.program
        stages, micro_batches = len(program.stages), program.schedule.microbatches
        most = most_microbatches(stages, program.chunks_per_stage)
        if micro_batches > most:
            allowed = f"at most {most} with these stages"
            raise InputError("schedule.microbatches", micro_batches, allowed, most)
        chunks = [self.lowering.stage(plan, stage) for stage in range(stages)]
        reaches = self.reaches(plan)
        times = [self._times(plan, *held) for held in zip(chunks, reaches, strict=True)]
        if give_up_s < float("inf") and self._bound_s(plan, times) >= give_up_s:
            return None
        runs = [StageRun(s, _order(plan, s), times[s], reaches[s]) for s in range(stages)]
        _play(runs, Messages(plan, chunks, self.pricer))
        return self._finish(plan, chunks, runs)

    def pass_time(self, chunk: StageChunk, kind: PassKind, reach: int) -> PassTime:
        """Seconds of one pass, computed once for chunks of equal layers."""
        layers = tuple((id(e.lowered), id(e.unit)) for e in chunk.layers)
        key = (layers, kind.forward, kind.first, kind.last, reach)
        found = self._passes.get(key)
        if found is None:
            found = self._passes[key] = pass_time(chunk, kind, self.pricer.reaching(reach))
        return found

    def reaches(self, plan: Plan) -> list[int]:
        """How many link levels the groups of each stage cross."""
        machine, used = self.pricer.machine, used_devices(plan)
        return [machine.reach_of(place.device_count, used) for place in plan.program.stages]

    def _times(
        self, plan: Plan, chunks: tuple[StageChunk, ...], reach: int
    ) -> dict[PassKind, PassTime]:
        """Seconds of every kind of pass of a stage."""
        alone = plan.program.schedule.microbatches == 1
        ends = [(True, True)] if alone else [(True, False), (False, False), (False, True)]
        kinds = [
            PassKind(forward, index, first, last)
            for index in range(len(chunks))
            for forward in (True, False)
            for first, last in ends
        ]
        return {kind: self.pass_time(chunks[kind.chunk], kind, reach) for kind in kinds}

    def _bound_s(self, plan: Plan, times: list[dict[PassKind, PassTime]]) -> float:
        """Least step time: a stage's work, after and before one micro-batch of earlier stages.

        A stage's first forward pass follows the first chunks of all earlier stages, and their
        backward passes follow its last one.
        """
        micro_batches = plan.program.schedule.microbatches
        best = earlier = 0.0
        for held in times:
            work = sum(
                t.time_s * (1 if k.first or k.last else micro_batches - 2) for k, t in held.items()
            )
            best = max(best, work + earlier)
            earlier += sum(
                min(t.time_s for k, t in held.items() if k.chunk == 0 and k.forward == forward)
                for forward in (True, False)
            )
        return best + self.pricer.step_s

    def _finish(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]], runs: list[StageRun]
    ) -> Simulation:
        """Open sums, the norm that all stages wait for, the update, and memory."""
        stack = self.lowering.stack
        used = used_devices(plan)
        across = self.pricer.reaching(self.pricer.machine.reach_of(used, used))
        norm_s = 0.0
        for run in runs:
            layers = sum(len(chunk.layers) for chunk in chunks[run.stage])
            end = end_of_step(plan, stack, run.stage, chunks[run.stage])
            inside = self.pricer.reaching(run.reach)
            copies_s, run.tensor_sums_s = inside.split(end.tensor_sums)
            run.tied_sum_s = across.split(end.tied_sum)[1]
            run.update_s = copies_s + inside.split(end.update)[0]
            run.gathers_s = self._exposed_gathers_s(run, layers, inside.split(end.gathers)[1])
            norm_s = across.collective(end.norm).time_s
        barrier_s = max(run.ready_s for run in runs) + norm_s
        host_s = self.pricer.step_s
        step_time_s = barrier_s + max(run.update_s + run.gathers_s for run in runs) + host_s
        prefetch = self.pricer.overlaps.dp_parameter
        memory = tuple(
            memory_row(
                plan,
                stack,
                run.stage,
                stage_peak(plan, stack, run.order, chunks[run.stage], prefetch),
                communicators(plan, run.stage),
            )
            for run in runs
        )
        return Simulation(step_time_s, barrier_s, norm_s, host_s, runs, chunks, memory)

    def _exposed_gathers_s(self, run: StageRun, layers: int, gathers_s: float) -> float:
        """What shows of gathers after the update: those hidden run beside the next forward.

        The first layer's gather has nothing before it to hide behind.
        """
        if not self.pricer.overlaps.dp_parameter or not gathers_s:
            return gathers_s
        forward_s = sum(t.time_s for kind, t in run.times.items() if kind.forward and kind.first)
        first_s = gathers_s / layers
        slowdown = self.pricer.stack.overlap_slowdown
        return max(first_s, exposed_beside_kernels(gathers_s, forward_s, slowdown))


def used_devices(plan: Plan) -> int:
    """Devices from the cluster's first to the last that a stage holds."""
    places = [place.devices[0] for place in plan.program.stages]
    return max(place.first_rank + place.count for place in places)


def _order(plan: Plan, stage: int) -> tuple[Pass, ...]:
    program = plan.program
    schedule = program.schedule
    stages, chunks = len(program.stages), program.chunks_per_stage
    return stage_order(schedule.kind, stage, stages, chunks, schedule.microbatches)


class Messages:
    """Seconds of the message that each chunk sends, forward and backward.

    Where the stack overlaps them a message travels while its sender goes on; otherwise the sender
    waits until it is over (``blocking``).
    """

    def __init__(self, plan: Plan, chunks: list[tuple[StageChunk, ...]], pricer: Pricer) -> None:
        self.stages = len(chunks)
        self.positions = len(chunks) * len(chunks[0])
        self.micro_batches = plan.program.schedule.microbatches
        self.blocking = not pricer.overlaps.pp
        places = plan.program.stages
        self._seconds: dict[tuple[bool, int], float] = {}
        for position in range(self.positions):
            virtual, stage = divmod(position, self.stages)
            chunk = chunks[stage][virtual]
            for forward, size in ((True, chunk.sends_bytes), (False, chunk.receives_bytes)):
                peer = (position + (1 if forward else -1)) % self.stages
                seconds = 0.0
                if size and peer != stage:
                    level = _level_between(places[stage], places[peer], pricer.machine)
                    seconds = pricer.message(size, level)
                self._seconds[forward, position] = seconds

    def seconds(self, forward: bool, position: int) -> float:
        """Seconds of the message that leaves the chunk at ``position``."""
        return self._seconds.get((forward, position), 0.0)


def _level_between(stage: Stage, peer: Stage, machine: Machine) -> LinkRates:
    """The level that the slowest message between the ranks of two stages crosses."""
    first, last = sorted(s.devices[0].first_rank for s in (stage, peer))
    return machine.level_between(first, last + stage.device_count - 1)


Timing = tuple[float, "list[float] | None", float, "list[float]", float]
"""Of a kind of pass: duration, ends of what it waits for, their travel, own ends, time sending."""
Step = tuple[Timing, int]
"""A pass: the timing of its kind, and its micro-batch."""
NOT_YET = -1.0


def _play(runs: list[StageRun], messages: Messages) -> None:
    """Run every stage as far as its inputs allow, back and forth, until all are through."""
    shape = (messages.positions, messages.micro_batches)
    ends = {forward: [[NOT_YET] * shape[1] for _ in range(shape[0])] for forward in (True, False)}
    pending = [(run, _steps(run, messages, ends)) for run in runs]
    while pending:
        before = sum(len(run.starts_s) for run, _ in pending)
        for run, steps in pending:
            _advance(run, steps)
        if before == sum(len(run.starts_s) for run, _ in pending):
            raise RuntimeError("the schedule waits for itself")
        pending = [(r, steps) for r, steps in reversed(pending) if len(r.starts_s) < len(steps)]


def _steps(run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]]) -> list[Step]:
    """The passes of a stage with everything their timing depends on looked up."""
    last = messages.micro_batches - 1
    known: dict[tuple[bool, int, bool, bool], Timing] = {}
    found: list[Step] = []
    for forward, chunk, micro_batch in run.order:
        key = (forward, chunk, micro_batch == 0, micro_batch == last)
        if key not in known:
            known[key] = _timing(run, messages, ends, PassKind(*key))
        found.append((known[key], micro_batch))
    return found


def _timing(
    run: StageRun, messages: Messages, ends: dict[bool, list[list[float]]], kind: PassKind
) -> Timing:
    """What the timing of a kind of pass depends on."""
    position = kind.chunk * messages.stages + run.stage
    source = position - 1 if kind.forward else position + 1
    inner = 0 <= source < messages.positions
    return (
        run.times[kind].time_s,
        ends[kind.forward][source] if inner else None,
        0.0 if messages.blocking else messages.seconds(kind.forward, source),
        ends[kind.forward][position],
        messages.seconds(kind.forward, position) if messages.blocking else 0.0,
    )


def _advance(run: StageRun, steps: list[Step]) -> None:
    """Run passes until one's input has not been made yet."""
    clock_s, lost_s, starts = run.end_s, run.message_s, run.starts_s
    for place in range(len(starts), len(steps)):
        (time_s, waits_for, travel_s, own, sends_s), micro_batch = steps[place]
        start_s = clock_s
        if waits_for is not None:
            made_s = waits_for[micro_batch]
            if made_s == NOT_YET:
                break
            arrives_s = made_s + travel_s
            if arrives_s > clock_s:
                lost_s += min(arrives_s - clock_s, travel_s)
                start_s = arrives_s
        starts.append(start_s)
        clock_s = start_s + time_s + sends_s
        lost_s += sends_s
        own[micro_batch] = clock_s
    run.end_s, run.message_s = clock_s, lost_s


def communicators(plan: Plan, stage: int) -> int:
    """How many process groups of more than one rank a rank of ``stage`` is in, the world too."""
    place = plan.program.stages[stage]
    world = sum(s.device_count for s in plan.program.stages)
    messages = 4 if len(plan.program.stages) > 1 else 0
    strategies = plan.stage_strategies(stage)
    groups = stage_groups(strategies, place.device_count, plan.expert_strategies(stage))
    tied = plan.model.tie_embeddings and stage in (0, len(plan.program.stages) - 1) and messages > 0
    return len(groups) + messages + tied + (world > 1)
