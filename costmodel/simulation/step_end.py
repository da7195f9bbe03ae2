"""End of step: pending gradient reductions, global norm, optimizer update.

Stages with equal layers do the same, so each kind of stage is priced once. A stage's process groups
are counted here too: each has its buffers all step long.
"""

from __future__ import annotations

from typing import NamedTuple

from ...spec.cluster.stack_spec import StackSpec
from ...spec.parallel.rank_groups import stage_groups
from ...spec.plan.plan import Plan
from ...spec.plan.technique_groups import plan_reduced_ranks, stage_technique_groups
from ...spec.technique import Values
from ...spec.techniques import TECHNIQUES
from ..lowering.chunk import StageChunk
from ..lowering.plan_lowering import Lowering
from ..lowering.step_work import step_end_work
from ..lowering.tied_embeddings import table_stages
from ..pricing.group_pricer import GroupPricer
from ..pricing.overlap import exposed_over_kernels, slowed
from ..pricing.pricer import Pricer
from ..program_technique import StepAdditions
from ..symbolic.lane_work import Lane, LaneWork, LaneWorks
from .lane_clocks import ChainedLaneWork, placed_chains
from .pass_time import sum_by_name
from .rank_class import RankClass
from .stage_run import StageRun, StepLane, StepLanes


class _LanesUpdate(NamedTuple):
    """What techniques' lanes add to an update, by name, and where they are.

    ``beside_s`` of it outlast the device's own work, the rest is in line.
    """

    added: list[tuple[str, float]]
    placed: tuple[ChainedLaneWork, ...]
    beside_s: float


class _StepEndTimes(NamedTuple):
    """Seconds of a class of a stage's ranks after its passes."""

    reductions_s: float
    pending_reductions_s: float
    tied_reduction_s: float
    update_s: float
    gathers_s: float
    norm_s: float
    technique_s: dict[str, float]
    lanes: _LanesUpdate
    step_lanes: StepLanes


def apply_step_end(
    plan: Plan,
    lowering: Lowering,
    prices: GroupPricer,
    chunks: list[tuple[StageChunk, ...]],
    runs: list[StageRun],
) -> tuple[float, float]:
    """Fill in each stage's work after its passes.

    Args:
        plan: the plan.
        lowering: of its layers.
        prices: of its machine.
        chunks: the lowered chunks of every stage.
        runs: of every stage, timed.

    Returns:
        When all stages have the norm, and the seconds of the norm itself.
    """
    tied_stages, norm_s = table_stages(plan), 0.0
    cache: dict[tuple[object, ...], _StepEndTimes] = {}
    for run in runs:
        tied = run.stage if run.stage in tied_stages else None
        ends = []
        for rank_class in run.classes:
            layer_ids = tuple(chunk.layer_ids for chunk in rank_class.chunks)
            key = (layer_ids, tied, rank_class.group, rank_class.link_span)
            if key not in cache:
                cache[key] = _step_end_times(plan, lowering, prices, run.stage, rank_class)
            ends.append(cache[key])
        run.reductions_s = max(end.reductions_s for end in ends)
        run.pending_reductions_s = max(end.pending_reductions_s for end in ends)
        run.tied_reduction_s = max(end.tied_reduction_s for end in ends)
        run.gathers_s = max(end.gathers_s for end in ends)
        norm_s = max(end.norm_s for end in ends)
        latest = max(ends, key=lambda end: end.update_s)
        run.update_s, run.update_technique_s = latest.update_s, latest.technique_s
        run.update_lanes, run.update_beside_s = latest.lanes.placed, latest.lanes.beside_s
        run.step_lanes = latest.step_lanes
    barrier_s = max(run.ready_s for run in runs) + norm_s
    for run in runs:
        layers = sum(len(chunk.layers) for chunk in chunks[run.stage])
        run.gathers_s = _exposed_gathers_s(lowering.stack, prices, run, layers, barrier_s - norm_s)
        if run.step_lanes:
            _add_step_lanes(run, barrier_s, prices.whole)
    return barrier_s, norm_s


def _step_end_times(
    plan: Plan,
    lowering: Lowering,
    prices: GroupPricer,
    stage: int,
    rank_class: RankClass,
) -> _StepEndTimes:
    ranks = plan.program.stages[stage].device_count
    additions = lowering.step_additions(rank_class.chunks, ranks)
    end = step_end_work(plan, lowering.stack, stage, rank_class.chunks, additions)
    pricer = prices.at(rank_class.group, rank_class.link_span)
    copies_s, pending_reductions_s = pricer.split(end.pending_reductions)
    casts_s, gathers_s = pricer.split(end.gathers)
    added = [(a.technique, sum(pricer.split(a.items)) / a.every) for a in end.added]
    device_s = copies_s + sum(pricer.split(end.update)) + casts_s
    lanes = _lanes_update(end.lanes, pricer, device_s)
    in_line, step_lanes = _step_lanes(additions, pricer)
    technique_s = sum_by_name(added, lanes.added, in_line)
    units = (entry.unit for chunk in rank_class.chunks for entry in chunk.layers)
    return _StepEndTimes(
        reductions_s=sum(pricer.unit(unit).reduce.after_passes_s for unit in units if unit),
        pending_reductions_s=pending_reductions_s,
        tied_reduction_s=prices.first_to_last_stage_s(plan, end.tied_reduction),
        update_s=device_s + sum(technique_s.values()),
        gathers_s=gathers_s,
        norm_s=prices.all_ranks_collective_s(plan, end.norm),
        technique_s=technique_s,
        lanes=lanes,
        step_lanes=step_lanes,
    )


def _step_lanes(
    additions: StepAdditions, pricer: Pricer
) -> tuple[list[tuple[str, float]], StepLanes]:
    """Mean seconds a step of work beside whole steps: what stops the device, and the rest."""
    in_line: list[tuple[str, float]] = []
    beside: list[StepLane] = []
    for name, addition in additions:
        for lane, items in addition.beside:
            work = LaneWork(name, lane, items, "with")
            seconds = pricer.lane_s(work) / addition.every
            if pricer.in_line(work):
                in_line.append((name, seconds))
            elif seconds:
                beside.append(StepLane(name, lane, seconds))
    return in_line, tuple(beside)


def _add_step_lanes(run: StageRun, barrier_s: float, pricer: Pricer) -> None:
    """Add what shows of lanes beside whole steps to the update.

    Work of one step in several takes its share of each: exposed seconds are in proportion.
    """
    window_s = barrier_s + run.update_s + run.gathers_s + pricer.step_s
    lanes: dict[Lane, float] = {}
    for work in run.step_lanes:
        lanes[work.lane] = lanes.get(work.lane, 0.0) + work.seconds
    slowdown = pricer.stack.overlap_slowdown
    exposed_s = max(exposed_over_kernels(s, window_s, slowdown) for s in lanes.values())
    share = exposed_s / sum(work.seconds for work in run.step_lanes)
    shown = [(work.technique, work.seconds * share) for work in run.step_lanes]
    run.update_technique_s = sum_by_name(run.update_technique_s.items(), shown)
    run.update_beside_s += exposed_s
    run.update_s += exposed_s


def _lanes_update(lanes: tuple[LaneWorks, ...], pricer: Pricer, device_s: float) -> _LanesUpdate:
    """Techniques' lanes beside ``device_s`` of an update.

    Each unit's work is a chain from when the norm is known. Work in line adds all its seconds, the
    others their share of what outlasts the device.
    """
    added: list[tuple[str, float]] = []
    chains: list[list[tuple[str, Lane, float]]] = []
    for works in lanes:
        chains.append([])
        for work in works:
            seconds = pricer.lane_s(work)
            if pricer.in_line(work):
                added.append((work.technique, seconds))
            else:
                chains[-1].append((work.technique, work.lane, seconds))
    placed = placed_chains(chains, pricer.both_ways_slowdown)
    end_s = max((work.start_s + work.seconds for work in placed), default=0.0)
    beside_s = max(0.0, end_s - device_s)
    if beside_s:
        share = beside_s / sum(work.seconds for work in placed)
        added += [(work.technique, work.seconds * share) for work in placed]
    return _LanesUpdate(added, placed, beside_s)


def _exposed_gathers_s(
    stack: StackSpec, prices: GroupPricer, run: StageRun, layers: int, barrier_s: float
) -> float:
    """Exposed gathers after the update: hidden ones overlap the next forward.

    The first layer's gather has nothing before it to hide behind, and a stage's own step lasts as
    long as its passes with the first forward no shorter than the overlapped gathers. ZeRO with
    whole parameters (DeepSpeed's first two stages) gathers serially.
    """
    contiguous = stack.state_layout == "contiguous"
    if not (prices.whole.overlaps.dp_parameter and contiguous and run.gathers_s):
        return run.gathers_s
    forward_s = sum(t.time_s for kind, t in run.times.items() if kind.forward and kind.first)
    slowdown = prices.whole.stack.overlap_slowdown
    longer_s = max(0.0, slowed(run.gathers_s, forward_s, slowdown) - forward_s)
    stage_s = run.busy_s + longer_s + run.after_passes_s
    return max(run.gathers_s / layers, stage_s - barrier_s)


def communicators(plan: Plan, techniques: Values = TECHNIQUES) -> list[int]:
    """Process groups of several ranks per rank of each stage.

    The world counts too.

    Args:
        plan: the plan.
        techniques: known ones, with groups of their own.
    """
    stages, all_strategies = plan.program.stages, plan.layer_strategies()
    world = sum(stage.device_count for stage in stages)
    messages = 4 if len(stages) > 1 else 0
    tied_stages = table_stages(plan) if messages else ()
    counts = []
    for number, stage in enumerate(stages):
        strategies = plan.stage_strategies(number, all_strategies)
        reduced = plan_reduced_ranks(plan, number, techniques)
        experts = plan.expert_strategies(number)
        groups = stage_groups(strategies, stage.device_count, experts, reduced)
        tied = len(tied_stages) > 1 and number in tied_stages
        technique_groups = len(stage_technique_groups(plan, number, techniques))
        counts.append(len(groups) + technique_groups + messages + tied + (world > 1))
    return counts
