"""Simulate one step of a plan: passes in schedule order, messages, the update.

One representative rank per stage and device group (:mod:`rank_class`), the slowest of which counts;
:mod:`pipeline_timing` times the passes. The stages then meet at the global gradient norm and
update. With fixed durations this is the longest path through the passes, so it never gets shorter
when any pass gets longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.limits import MAX_PASSES
from ...spec.plan.plan import Plan
from ...spec.report.report import MemoryRow
from ...spec.schedules.passes import BackwardPart
from ...spec.schedules.stage_order import SPLIT_KINDS, ScheduleKind, chunk_position
from ..lowering.chunk import StageChunk
from ..lowering.plan_lowering import Lowering
from ..lowering.stage_passes import ConcurrentPasses, PassKind, passes_of
from ..memory.offload_tiers import tier_rows
from ..memory.pass_memory import PassMemoryCache
from ..memory.peak import memory_row, stage_peak
from ..pricing.group_pricer import GroupPricer, stage_group, used_devices, used_groups
from ..pricing.link_span import LinkSpan, stage_link_spans
from ..pricing.machine import Machine
from ..pricing.pricer import Pricer
from ..technique import TechniquePrices
from ..techniques import TECHNIQUES
from .overlapped_passes import PAIRED_KINDS, pair_time
from .pass_time import PassTime, pass_time
from .pipeline_timing import MessageTimes, time_pipeline
from .rank_class import RankClass, refuse_too_many
from .stage_run import StageRun
from .step_end import apply_step_end, communicators


def max_microbatches(
    stages: int, chunks: int, kind: ScheduleKind = "1f1b", written: bool = False
) -> int:
    """Most micro-batches of a step with these stages and chunks."""
    passes = 3 if kind in SPLIT_KINDS or written else 2
    return max(1, MAX_PASSES // (passes * stages * chunks))


@dataclass(slots=True)
class Simulation:
    """Result of one simulated step; ``stages`` by stage number.

    ``chunks``: of each stage's first device group.
    """

    kind: ScheduleKind
    step_time_s: float
    barrier_s: float
    norm_s: float
    host_s: float
    stages: list[StageRun]
    chunks: list[tuple[StageChunk, ...]]
    memory: tuple[MemoryRow, ...]

    def position(self, stage: int, chunk: int) -> int:
        """Position in the model of a stage's chunk."""
        return chunk_position(self.kind, stage, chunk, len(self.stages))

    @property
    def critical(self) -> StageRun:
        """The stage with the busiest compute stream (the first on a tie)."""
        return max(self.stages, key=lambda run: (run.busy_s + run.update_s, -run.stage))


class Simulator:
    """Simulate plans of one model and workload on one machine with one stack.

    Args:
        lowering: layers and units of model, workload and stack.
        pricer: prices on the machine.
        effects: cached memory effects of the lowering's passes, from other machines.
    """

    def __init__(
        self, lowering: Lowering, pricer: Pricer, effects: PassMemoryCache | None = None
    ) -> None:
        self.lowering = lowering
        self.pricer = pricer
        self.prices = GroupPricer(pricer)
        self._passes: dict[tuple[object, ...], PassTime] = {}
        self._effects = effects or PassMemoryCache(lowering.stack)

    @classmethod
    def for_plan(
        cls,
        plan: Plan,
        machine: Machine,
        stack: StackSpec,
        techniques: TechniquePrices = TECHNIQUES,
    ) -> Simulator:
        """A simulator for the plan's model and workload, with these techniques' prices."""
        program = plan.program.techniques
        lowering = Lowering(plan.model, plan.workload, stack, techniques, program)
        return cls(lowering, Pricer(machine, lowering.stack))

    def on(self, machine: Machine) -> Simulator:
        """A simulator of the same layers on another machine, with the same stack."""
        return Simulator(self.lowering, Pricer(machine, self.pricer.stack), self._effects)

    def run(self, plan: Plan, cutoff_s: float = float("inf")) -> Simulation | None:
        """Simulate one step of a legal plan.

        Args:
            plan: the plan.
            cutoff_s: return None if the step certainly takes at least this long.

        Raises:
            InputError: more passes than can be simulated.
        """
        untimed_runs = self.untimed_runs(plan, cutoff_s)
        if untimed_runs is None:
            return None
        chunks, runs = untimed_runs
        time_pipeline(runs, MessageTimes(plan, chunks, self.prices))
        return self.finish(plan, chunks, runs)

    def untimed_runs(
        self, plan: Plan, cutoff_s: float = float("inf")
    ) -> tuple[list[tuple[StageChunk, ...]], list[StageRun]] | None:
        """Lowered chunks of every stage and its priced passes, untimed; as ``run``."""
        program = plan.program
        if program.techniques != self.lowering.program:
            raise RuntimeError("layers were lowered for other values of the program's techniques")
        stages, micro_batches = len(program.stages), program.schedule.microbatches
        kind, has_actions = program.schedule.kind, program.schedule.actions is not None
        limit = max_microbatches(stages, program.chunks_per_stage, kind, has_actions)
        if micro_batches > limit:
            allowed = f"at most {limit} with these stages"
            raise InputError("schedule.microbatches", micro_batches, allowed, limit)
        classes = self.classes(plan)
        chunks = [stage_classes[0].chunks for stage_classes in classes]
        if kind in PAIRED_KINDS or has_actions:
            runs = []
            for s in range(stages):
                run = self._paired_run(plan, s, classes[s])
                if run.busy_s + self.pricer.step_s >= cutoff_s:
                    return None
                runs.append(run)
        else:
            counts = pass_kind_counts(kind, micro_batches, program.chunks_per_stage)
            slowest = [self._slowest(counts, stage_classes) for stage_classes in classes]
            times = [stage_times for stage_times, _ in slowest]
            if cutoff_s < float("inf") and self.step_lower_bound_s(counts, times) >= cutoff_s:
                return None
            runs = [
                StageRun(s, passes_of(plan, s), times[s], classes[s], slowest[s][1])
                for s in range(stages)
            ]
        return chunks, runs

    def classes(self, plan: Plan) -> list[tuple[RankClass, ...]]:
        """Classes of ranks of every stage: one per device group.

        Raises:
            InputError: more than can be priced separately.
        """
        refuse_too_many(plan)
        strategies, link_spans = plan.layer_strategies(), self.link_spans(plan)
        return [
            tuple(
                RankClass(
                    devices.device_group,
                    devices.count,
                    self.lowering.stage(plan, s, n, strategies),
                    r,
                )
                for n, (devices, r) in enumerate(zip(stage.devices, link_spans[s], strict=True))
            )
            for s, stage in enumerate(plan.program.stages)
        ]

    def _slowest(
        self, counts: dict[ConcurrentPasses, int], classes: tuple[RankClass, ...]
    ) -> tuple[dict[PassKind, PassTime], dict[PassKind, int]]:
        """Seconds of each kind of pass on its slowest class, and that class."""
        times = [self._times(counts, c.chunks, c.group, c.link_span) for c in classes]
        if len(times) == 1:
            return times[0], {}
        slowest = {
            kind: max(range(len(times)), key=lambda n: (times[n][kind].time_s, -n))
            for kind in times[0]
        }
        slowest_times = {}
        for kind, number in slowest.items():
            time = times[number][kind]
            least_tail_s = time.time_s - max(t[kind].time_s - t[kind].tail_s for t in times)
            slowest_times[kind] = replace(time, tail_s=least_tail_s)
        return slowest_times, slowest

    def _paired_run(self, plan: Plan, stage: int, classes: tuple[RankClass, ...]) -> StageRun:
        """A stage with overlapping passes or an explicit order."""
        passes = passes_of(plan, stage)
        counts = passes.counts
        pairs: dict[ConcurrentPasses, PassTime] = {}
        for rank_class in classes:
            times = self._times(counts, rank_class.chunks, rank_class.group, rank_class.link_span)
            pricer = self.prices.inside(rank_class.group)
            hides, slowdown = pricer.hides_sharding, pricer.stack.overlap_slowdown
            for kinds in counts:
                if len(kinds) == 2:
                    pair = pair_time(times[kinds[0]], times[kinds[1]], slowdown, hides)
                    if kinds not in pairs or pair.time_s > pairs[kinds].time_s:
                        pairs[kinds] = pair
        slowest, slowest_class = self._slowest(counts, classes)
        return StageRun(stage, passes, slowest, classes, slowest_class, pairs)

    def pass_time(
        self, chunk: StageChunk, kind: PassKind, group: str, link_span: LinkSpan
    ) -> PassTime:
        """Seconds of one pass on a device group, cached by equal layers."""
        key = (chunk.layer_ids, kind.forward, kind.first, kind.last, kind.part, group, link_span)
        cached = self._passes.get(key)
        if cached is None:
            pricer = self.prices.at(group, link_span)
            cached = self._passes[key] = pass_time(chunk, kind, pricer)
        return cached

    def link_spans(self, plan: Plan) -> list[list[LinkSpan]]:
        """Link levels that each stage's groups span, seen from each device group."""
        cluster = self.pricer.machine.cluster
        used = {group: used_devices(plan, group) for group in used_groups(plan)}
        return [
            stage_link_spans(cluster, stage, self.prices.inside(group).machine, used[group])
            for stage in plan.program.stages
            for group in [stage_group(stage)]
        ]

    def _times(
        self,
        counts: dict[ConcurrentPasses, int],
        chunks: tuple[StageChunk, ...],
        group: str,
        link_span: LinkSpan,
    ) -> dict[PassKind, PassTime]:
        kinds = dict.fromkeys(kind for together in counts for kind in together)
        return {kind: self.pass_time(chunks[kind.chunk], kind, group, link_span) for kind in kinds}

    def step_lower_bound_s(
        self, counts: dict[ConcurrentPasses, int], times: list[dict[PassKind, PassTime]]
    ) -> float:
        """Lower bound of the step: a stage's work between earlier stages' micro-batch.

        A stage's first forward pass follows the first chunks of all earlier stages, and their
        backward passes follow its last one, unless they are split: then only the forward counts.
        No backward pass waits for a later stage's tail of reductions.

        Args:
            counts: how often each kind of pass runs, the same on every stage; none in pairs.
            times: seconds of each kind on every stage.
        """
        best = fill = drain = 0.0
        for stage_times in times:
            work = sum(t.time_s * counts[k,] for k, t in stage_times.items())
            tail = max(t.tail_s for t in stage_times.values())
            best = max(best, fill + work, fill + work - tail + drain)
            fill += _least_output_s(stage_times, forward=True)
            drain += _least_output_s(stage_times, forward=False)
        return best + self.pricer.step_s

    def finish(
        self, plan: Plan, chunks: list[tuple[StageChunk, ...]], runs: list[StageRun]
    ) -> Simulation:
        """Add pending reductions, the global norm, the update, and memory.

        Raises:
            InputError: rates so small, or work so large, that no number holds the step's seconds.
        """
        stack = self.lowering.stack
        barrier_s, norm_s = apply_step_end(plan, self.lowering, self.prices, chunks, runs)
        host_s = self.pricer.step_s
        step_time_s = barrier_s + max(run.update_s + run.gathers_s for run in runs) + host_s
        if not math.isfinite(step_time_s):
            allowed = "rates and sizes with which a step takes less than 1.8e308 s"
            raise InputError("cluster.levels", "a step that never ends", allowed)
        prefetch = not self.pricer.machine.is_cpu
        technique_values = tuple(price.value for price in self.lowering.techniques.values())
        rows: list[MemoryRow] = []
        for run, groups in zip(runs, communicators(plan, technique_values), strict=True):
            for rank_class in run.classes:
                rank_location = (run.stage, rank_class.group)
                ranks = plan.program.stages[run.stage].device_count
                added = self.lowering.step_additions(rank_class.chunks, ranks)
                allocated = stage_peak(
                    plan, stack, run.stage, run.passes, rank_class.chunks, prefetch, self._effects
                )
                allocated["workspace"] += sum(step.resident_bytes for _, step in added)
                states = tuple(s for _, step in added for s in step.resident_tier_bytes)
                rows.append(memory_row(plan, stack, rank_location, allocated, groups))
                rows += tier_rows(plan, rank_location, run.passes, rank_class.chunks, states)
        memory = tuple(rows)
        kind = plan.program.schedule.kind
        return Simulation(kind, step_time_s, barrier_s, norm_s, host_s, runs, chunks, memory)


def _least_output_s(times: dict[PassKind, PassTime], forward: bool) -> float:
    """Least seconds to the output of a first chunk's whole pass; 0 if they are split."""
    seconds = (
        t.time_s - t.tail_s
        for k, t in times.items()
        if k.chunk == 0 and k.forward == forward and k.part == "whole"
    )
    return min(seconds, default=0.0)


def pass_kind_counts(
    kind: ScheduleKind, micro_batches: int, chunks: int
) -> dict[ConcurrentPasses, int]:
    """Runs of each kind of pass on every stage, without overlapping pairs."""
    positions = {(True, True): 1}
    if micro_batches > 1:
        positions = {(True, False): 1, (False, False): micro_batches - 2, (False, True): 1}
    parts: tuple[BackwardPart, ...] = ("input", "weight") if kind in SPLIT_KINDS else ("whole",)
    directions: list[tuple[bool, BackwardPart]] = [
        (True, "whole"),
        *((False, part) for part in parts),
    ]
    return {
        (PassKind(forward, chunk, *position, part),): count
        for chunk in range(chunks)
        for forward, part in directions
        for position, count in positions.items()
    }
