"""Simulating one step of a plan: every stage's passes in schedule order, messages, the update.

One representative rank a stage. A pass starts when its stage is free and its input has
arrived; a message leaves when the pass that made it ends. The stages then meet at the global
gradient norm and update. With durations fixed this is the longest path through the passes, so
it never gets shorter when any pass gets longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..spec.errors import InputError
from ..spec.groups import stage_groups
from ..spec.kernels import Kernel
from ..spec.plan import Plan
from ..spec.report import MemoryRow
from ..spec.schedule import Pass, stage_order
from ..spec.stack import StackSpec
from .lowering import Lowering, StageChunk
from .machine import Machine
from .memory import PassKind, memory_row, stage_peak
from .pass_time import PASS_TERMS, PassTime, pass_time
from .prices import Pricer
from .step import NORM_AND_LOSS_BYTES, end_of_step

MAX_PASSES = 4_000_000


@dataclass(slots=True)
class StageRun:
    """One stage's step: when each pass started, work by term.

    ``message_s`` is what its stream lost to messages: waiting for one under way, or sending.
    """

    stage: int
    starts_s: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    message_s: float = 0.0
    end_s: float = 0.0
    finish_wire_s: float = 0.0
    update_s: float = 0.0
    terms_s: list[float] = field(default_factory=lambda: [0.0] * len(PASS_TERMS))
    measured_s: float = 0.0

    def add(self, time: PassTime) -> None:
        """Count a pass."""
        self.busy_s += time.time_s
        self.measured_s += time.measured_s
        for number, seconds in enumerate(time.terms_s):
            self.terms_s[number] += seconds


@dataclass(slots=True)
class Simulation:
    """The result of one simulated step; ``stages`` and ``orders`` by stage number."""

    step_time_s: float
    barrier_s: float
    norm_s: float
    host_s: float
    stages: list[StageRun]
    orders: list[tuple[Pass, ...]]
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

    def run(self, plan: Plan, with_memory: bool = True) -> Simulation:
        """One step of a legal plan.

        Args:
            plan: the plan.
            with_memory: also play the memory ledger.

        Raises:
            InputError: more passes than can be simulated.
        """
        program = plan.program
        stages, micro_batches = len(program.stages), program.schedule.microbatches
        if stages * program.chunks_per_stage * micro_batches > MAX_PASSES:
            raise InputError(
                "schedule.microbatches", micro_batches, f"at most {MAX_PASSES} passes in all"
            )
        chunks = [self.lowering.stage(plan, stage) for stage in range(stages)]
        orders = [
            stage_order(program.schedule.kind, s, stages, len(chunks[s]), micro_batches)
            for s in range(stages)
        ]
        runs = self._play(plan, chunks, orders)
        memory = self._memory(plan, chunks) if with_memory else ()
        return self._finish(plan, chunks, orders, runs, memory)

    def pass_time(self, chunk: StageChunk, kind: PassKind) -> PassTime:
        """Seconds of one pass, computed once for chunks of equal layers."""
        key = (
            tuple((id(e.lowered), id(e.unit)) for e in chunk.layers),
            kind.forward,
            kind.first,
            kind.last,
        )
        found = self._passes.get(key)
        if found is None:
            found = self._passes[key] = pass_time(chunk, kind, self.pricer)
        return found

    def _play(
        self,
        plan: Plan,
        chunks: list[tuple[StageChunk, ...]],
        orders: list[tuple[Pass, ...]],
    ) -> list[StageRun]:
        """Run every stage as far as its inputs allow, in turn, until all are through."""
        stages = len(chunks)
        runs = [StageRun(stage) for stage in range(stages)]
        times = [self._times(plan, chunks[s]) for s in range(stages)]
        links = Links(plan, chunks, self.pricer)
        position = [0] * stages
        pending = list(range(stages))
        while pending:
            moved = False
            for s in list(pending):
                before = position[s]
                position[s] = self._advance(orders[s], before, runs[s], times[s], links)
                moved = moved or position[s] > before
                if position[s] == len(orders[s]):
                    pending.remove(s)
            if not moved:
                raise RuntimeError("the schedule waits for itself")
        return runs

    def _times(self, plan: Plan, chunks: tuple[StageChunk, ...]) -> dict[PassKind, PassTime]:
        """Seconds of every kind of pass of a stage."""
        alone = plan.program.schedule.microbatches == 1
        ends = [(True, True)] if alone else [(True, False), (False, False), (False, True)]
        kinds = [
            PassKind(forward, index, first, last)
            for index in range(len(chunks))
            for forward in (True, False)
            for first, last in ends
        ]
        return {kind: self.pass_time(chunks[kind.chunk], kind) for kind in kinds}

    @staticmethod
    def _advance(
        order: tuple[Pass, ...],
        position: int,
        run: StageRun,
        times: dict[PassKind, PassTime],
        links: Links,
    ) -> int:
        """Run passes until one's input has not been made yet; the new position."""
        while position < len(order):
            item = order[position]
            arrival = links.arrival(run.stage, item)
            if arrival is None:
                break
            made_s, message_s = arrival
            start_s = max(run.end_s, made_s + message_s)
            run.message_s += min(start_s - run.end_s, message_s)
            time = times[links.kind(item)]
            end_s = start_s + time.time_s
            run.starts_s.append(start_s)
            run.add(time)
            blocked_s = links.send(run.stage, item, end_s)
            run.message_s += blocked_s
            run.end_s = end_s + blocked_s
            position += 1
        return position

    def _memory(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]]
    ) -> tuple[MemoryRow, ...]:
        stack = self.lowering.stack
        rows = []
        for stage, held in enumerate(chunks):
            allocated = stage_peak(plan, stack, stage, held, self.pricer.overlap != "none")
            rows.append(memory_row(plan, stack, stage, allocated, communicators(plan, stage)))
        return tuple(rows)

    def _finish(
        self,
        plan: Plan,
        chunks: list[tuple[StageChunk, ...]],
        orders: list[tuple[Pass, ...]],
        runs: list[StageRun],
        memory: tuple[MemoryRow, ...],
    ) -> Simulation:
        """Open sums, the norm that all stages wait for, and the update."""
        norm_s = 0.0
        for run in runs:
            for item in end_of_step(plan, self.lowering.stack, run.stage, chunks[run.stage]):
                if isinstance(item, Kernel):
                    run.update_s += self.pricer.split((item,))[0]
                elif item.payload_bytes == NORM_AND_LOSS_BYTES:
                    norm_s = self.pricer.collective(item).time_s
                else:
                    run.finish_wire_s += self.pricer.collective(item).time_s
        barrier_s = max(run.end_s + run.finish_wire_s for run in runs) + norm_s
        host_s = self.pricer.step_s
        step_time_s = barrier_s + max(run.update_s for run in runs) + host_s
        return Simulation(step_time_s, barrier_s, norm_s, host_s, runs, orders, memory)


class Links:
    """When the output of each pass is there for the pass that needs it.

    With ``overlapped_p2p`` a message travels while its sender goes on; otherwise the sender
    waits until it is over.
    """

    def __init__(self, plan: Plan, chunks: list[tuple[StageChunk, ...]], pricer: Pricer) -> None:
        self.micro_batches = plan.program.schedule.microbatches
        self._stages = len(chunks)
        self._blocking = not pricer.stack.overlapped_p2p
        self._positions = len(chunks) * len(chunks[0])
        ranks = plan.program.stages[0].device_count
        self._message_s: dict[tuple[bool, int], float] = {}
        for position in range(self._positions):
            stage, chunk = position % self._stages, chunks[position % self._stages][
                position // self._stages
            ]
            for forward, size in ((True, chunk.sends_bytes), (False, chunk.receives_bytes)):
                peer = (position + (1 if forward else -1)) % self._stages
                distance = abs(peer - stage) * ranks
                crosses = size and distance
                self._message_s[forward, position] = (
                    pricer.message(size, distance) if crosses else 0.0
                )
        self._ends_s: dict[tuple[bool, int, int], float] = {}

    def kind(self, item: Pass) -> PassKind:
        """What kind of pass this is."""
        last = item.micro_batch == self.micro_batches - 1
        return PassKind(item.forward, item.chunk, item.micro_batch == 0, last)

    def arrival(self, stage: int, item: Pass) -> tuple[float, float] | None:
        """When the input of a pass was made and how long it travels; None if not made yet."""
        position = item.chunk * self._stages + stage
        source = position - 1 if item.forward else position + 1
        if not 0 <= source < self._positions:
            return 0.0, 0.0
        made_s = self._ends_s.get((item.forward, source, item.micro_batch))
        if made_s is None:
            return None
        return made_s, 0.0 if self._blocking else self._message_s[item.forward, source]

    def send(self, stage: int, item: Pass, end_s: float) -> float:
        """Note that a pass ended; seconds that its stage then spends on sending."""
        position = item.chunk * self._stages + stage
        blocked_s = self._message_s[item.forward, position] if self._blocking else 0.0
        self._ends_s[item.forward, position, item.micro_batch] = end_s + blocked_s
        return blocked_s


def communicators(plan: Plan, stage: int) -> int:
    """How many process groups of more than one rank a rank of ``stage`` is in, the world too."""
    place = plan.program.stages[stage]
    strategies = [
        strategy for parts in place.virtual_stages for part in parts for strategy in (part.strategy,)
    ]
    world = sum(s.device_count for s in plan.program.stages)
    messages = 4 if len(plan.program.stages) > 1 else 0
    return len(stage_groups(strategies, place.device_count)) + messages + (world > 1)
