"""Simulating one step of a plan: every stage's passes in schedule order, messages, the update.

One representative rank a stage; :mod:`.play` says when each pass starts. The stages then meet
at the global gradient norm and update. With durations fixed this is the longest path through
the passes, so it never gets shorter when any pass gets longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..spec.errors import InputError
from ..spec.passes import BackwardPart
from ..spec.plan import Plan
from ..spec.report import MemoryRow
from ..spec.schedule import SPLIT_KINDS, ScheduleKind, chunk_position
from ..spec.stack import StackSpec
from .closing import close, communicators
from .group_prices import GroupPrices, stage_group, used_devices, used_groups
from .lowering import Lowering, StageChunk
from .machine import Machine
from .memory import memory_row, stage_peak
from .pass_effects import PassEffects
from .pass_pairs import PAIRED_KINDS, hiding_terms, pair_time
from .pass_time import PassTime, pass_time
from .play import Messages, play
from .prices import Pricer
from .stage_passes import PassKind, Together, passes_of
from .stage_run import StageRun

MAX_PASSES = 2**21
"""Passes, forward and backward, of one simulated step: about half a minute's work."""


def most_microbatches(stages: int, chunks: int, kind: ScheduleKind = "1f1b") -> int:
    """How many micro-batches a step of so many stages and chunks may have to be simulated."""
    passes = 3 if kind in SPLIT_KINDS else 2
    return max(1, MAX_PASSES // (passes * stages * chunks))


@dataclass(slots=True)
class Simulation:
    """The result of one simulated step; ``stages`` by stage number."""

    kind: ScheduleKind
    step_time_s: float
    barrier_s: float
    norm_s: float
    host_s: float
    stages: list[StageRun]
    chunks: list[tuple[StageChunk, ...]]
    memory: tuple[MemoryRow, ...]

    def position(self, stage: int, chunk: int) -> int:
        """Which part of the model a chunk of a stage holds."""
        return chunk_position(self.kind, stage, chunk, len(self.stages))

    @property
    def critical(self) -> StageRun:
        """The stage whose compute stream is busy longest (the first on a tie)."""
        return max(self.stages, key=lambda run: (run.busy_s + run.update_s, -run.stage))


class Simulator:
    """Simulates plans of one model and workload on one machine with one stack.

    Args:
        lowering: layers and units of model, workload and stack.
        pricer: prices on the machine.
        effects: of the lowering's passes on memory, where they are known from other machines.
    """

    def __init__(
        self, lowering: Lowering, pricer: Pricer, effects: PassEffects | None = None
    ) -> None:
        self.lowering = lowering
        self.pricer = pricer
        self.prices = GroupPrices(pricer)
        self._passes: dict[tuple[object, ...], PassTime] = {}
        self._effects = effects or PassEffects(lowering.stack)

    @classmethod
    def for_plan(cls, plan: Plan, machine: Machine, stack: StackSpec) -> Simulator:
        """A simulator for the plan's model and workload."""
        return cls(Lowering(plan.model, plan.workload, stack), Pricer(machine, stack))

    def on(self, machine: Machine) -> Simulator:
        """A simulator of the same layers on another machine, with the same stack."""
        return Simulator(self.lowering, Pricer(machine, self.pricer.stack), self._effects)

    def run(self, plan: Plan, give_up_s: float = float("inf")) -> Simulation | None:
        """One step of a legal plan.

        Args:
            plan: the plan.
            give_up_s: None is returned where the step certainly takes at least this long.

        Raises:
            InputError: more passes than can be simulated.
        """
        staged = self.staged(plan, give_up_s)
        if staged is None:
            return None
        chunks, runs = staged
        play(runs, Messages(plan, chunks, self.prices))
        return self.finish(plan, chunks, runs)

    def staged(
        self, plan: Plan, give_up_s: float = float("inf")
    ) -> tuple[list[tuple[StageChunk, ...]], list[StageRun]] | None:
        """The lowered chunks of every stage, and its passes priced but not played; as ``run``."""
        program = plan.program
        stages, micro_batches = len(program.stages), program.schedule.microbatches
        kind = program.schedule.kind
        most = most_microbatches(stages, program.chunks_per_stage, kind)
        if micro_batches > most:
            allowed = f"at most {most} with these stages"
            raise InputError("schedule.microbatches", micro_batches, allowed, most)
        chunks = self.lowering.stages(plan)
        groups = [stage_group(stage) for stage in program.stages]
        reaches = self.reaches(plan)
        if kind in PAIRED_KINDS:
            runs = []
            for s in range(stages):
                run = self._paired_run(plan, s, chunks[s], reaches[s])
                if run.busy_s + self.pricer.step_s >= give_up_s:
                    return None
                runs.append(run)
        else:
            counts = kind_counts(kind, micro_batches, program.chunks_per_stage)
            held = zip(chunks, groups, reaches, strict=True)
            times = [self._times(counts, *of_stage) for of_stage in held]
            if give_up_s < float("inf") and self.least_s(counts, times) >= give_up_s:
                return None
            runs = [
                StageRun(s, passes_of(plan, s), times[s], groups[s], reaches[s])
                for s in range(stages)
            ]
        return chunks, runs

    def _paired_run(
        self, plan: Plan, stage: int, chunks: tuple[StageChunk, ...], reach: int
    ) -> StageRun:
        """A stage some of whose passes overlap, forwards with backwards."""
        passes, group = passes_of(plan, stage), stage_group(plan.program.stages[stage])
        counts = passes.counts
        times = self._times(counts, chunks, group, reach)
        pricer = self.prices.inside(group)
        in_line, slowdown = hiding_terms(pricer), pricer.stack.overlap_slowdown
        pairs: dict[Together, PassTime] = {
            kinds: pair_time(times[kinds[0]], times[kinds[1]], in_line, slowdown)
            for kinds in counts
            if len(kinds) == 2
        }
        return StageRun(stage, passes, times, group, reach, pairs)

    def pass_time(self, chunk: StageChunk, kind: PassKind, group: str, reach: int) -> PassTime:
        """Seconds of one pass on a device group, computed once for chunks of equal layers."""
        key = (chunk.layer_ids, kind.forward, kind.first, kind.last, kind.part, group, reach)
        found = self._passes.get(key)
        if found is None:
            pricer = self.prices.inside(group).reaching(reach)
            found = self._passes[key] = pass_time(chunk, kind, pricer)
        return found

    def reaches(self, plan: Plan) -> list[int]:
        """How many link levels of its device group the rank groups of each stage cross."""
        used = {group: used_devices(plan, group) for group in used_groups(plan)}
        return [
            self.prices.inside(group).machine.reach_of(stage.device_count, used[group])
            for stage in plan.program.stages
            for group in [stage_group(stage)]
        ]

    def _times(
        self, counts: dict[Together, int], chunks: tuple[StageChunk, ...], group: str, reach: int
    ) -> dict[PassKind, PassTime]:
        """Seconds of every kind of pass of a stage."""
        kinds = dict.fromkeys(kind for together in counts for kind in together)
        return {kind: self.pass_time(chunks[kind.chunk], kind, group, reach) for kind in kinds}

    def least_s(self, counts: dict[Together, int], times: list[dict[PassKind, PassTime]]) -> float:
        """Least step time: a stage's work, after and before one micro-batch of earlier stages.

        A stage's first forward pass follows the first chunks of all earlier stages, and their
        backward passes follow its last one, unless they are split: then only the forward counts.

        Args:
            counts: how often each kind of pass runs, the same on every stage; none in pairs.
            times: seconds of each kind on every stage.
        """
        best = earlier = 0.0
        for held in times:
            work = sum(t.time_s * counts[k,] for k, t in held.items())
            best = max(best, work + earlier)
            for forward in (True, False):
                first = [
                    t.time_s
                    for k, t in held.items()
                    if k.chunk == 0 and k.forward == forward and k.part == "whole"
                ]
                earlier += min(first, default=0.0)
        return best + self.pricer.step_s

    def finish(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]], runs: list[StageRun]
    ) -> Simulation:
        """Open sums, the norm that all stages wait for, the update, and memory."""
        stack = self.lowering.stack
        barrier_s, norm_s = close(plan, stack, self.prices, chunks, runs)
        host_s = self.pricer.step_s
        step_time_s = barrier_s + max(run.update_s + run.gathers_s for run in runs) + host_s
        prefetch = self.pricer.overlaps.dp_parameter
        memory = tuple(
            memory_row(
                plan,
                stack,
                run.stage,
                stage_peak(plan, stack, run.passes, chunks[run.stage], prefetch, self._effects),
                groups,
            )
            for run, groups in zip(runs, communicators(plan), strict=True)
        )
        kind = plan.program.schedule.kind
        return Simulation(kind, step_time_s, barrier_s, norm_s, host_s, runs, chunks, memory)


def kind_counts(kind: ScheduleKind, micro_batches: int, chunks: int) -> dict[Together, int]:
    """How often every stage runs each kind of pass, where none overlap in pairs."""
    ends = {(True, True): 1}
    if micro_batches > 1:
        ends = {(True, False): 1, (False, False): micro_batches - 2, (False, True): 1}
    parts: tuple[BackwardPart, ...] = ("input", "weight") if kind in SPLIT_KINDS else ("whole",)
    ways: list[tuple[bool, BackwardPart]] = [(True, "whole"), *((False, part) for part in parts)]
    return {
        (PassKind(forward, chunk, *end, part),): count
        for chunk in range(chunks)
        for forward, part in ways
        for end, count in ends.items()
    }
