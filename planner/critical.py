"""The critical path of a pipeline whose passes take given times, as a chain.

Which passes it has tells where seconds count, and it stays a chain of every plan of the shape,
whatever its passes take. Stages run their passes in order; a pass waits for its input's message;
passes that overlap start and end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..costmodel.stage_passes import StagePasses, Together, stage_passes
from ..spec.schedule import chunk_position
from .chains import Chain, Floats, Pipeline, chain_of, groups_of
from .pass_table import KINDS, kind_number

ABOUT = 0.05
"""Stages that end this fraction of the time before the last one end about as late."""
MOST_TRACED = 6
"""Stages whose chains the mean is of, about."""
Step = tuple[int, int]
"""A stage, and a group of passes that it starts together, by its number."""


class _Stage:
    """A stage while its passes are played: how far it has come, and when its groups end."""

    def __init__(self, stage: int, passes: StagePasses, seconds: Sequence[float]) -> None:
        self.stage = stage
        self.passes = passes
        self.groups = list(groups_of(passes))
        self.seconds = seconds
        self.done = 0
        self.clock_s = 0.0
        self.waited_for: list[tuple[Step, bool, int] | None] = []


Made = dict[tuple[bool, int, int], tuple[float, Step]]
"""When the output of (forward, position, micro-batch) is there, and what made it."""


def critical_chains(
    shape: Pipeline, pass_s: Callable[[int, Together], float], travel_s: Sequence[Sequence[float]]
) -> tuple[float, list[Chain]]:
    """Seconds of all passes, the chain that takes that long, and the mean of those about as long.

    Stages that are alike end about at the same time. What only the last of them would have on its
    chain, such as the reduction of its gradients, the mean has of all.

    Args:
        shape: schedule, stages, chunks a stage, micro-batches.
        pass_s: seconds of passes that start together on a stage.
        travel_s: seconds of the message into each position, going forward and backward.
    """
    kind, stages, chunks, microbatches = shape
    every = []
    for stage in range(stages):
        passes = stage_passes(kind, stage, stages, chunks, microbatches)
        known = {together: pass_s(stage, together) for together in passes.together}
        numbers = passes.groups if passes.groups is not None else passes.rows.tolist()
        seconds = [known[passes.together[number]] for number in numbers]
        every.append(_Stage(stage, passes, seconds))
    _play(shape, every, travel_s)
    last = max(every, key=lambda stage: (stage.clock_s, stage.stage))
    late = [stage for stage in every if stage.clock_s >= last.clock_s * (1 - ABOUT)]
    spread = [last, *late[:: max(1, len(late) // MOST_TRACED)]]
    traces = {stage.stage: _traced(shape, every, stage) for stage in spread}
    found = [chain_of(*traces[last.stage])]
    if len(traces) > 1:
        means = [sum(parts) / len(traces) for parts in zip(*traces.values(), strict=True)]
        found.append(chain_of(means[0], means[1], means[2]))
    return last.clock_s, found


def _play(shape: Pipeline, every: list[_Stage], travel_s: Sequence[Sequence[float]]) -> None:
    made: Made = {}
    pending = list(every)
    while pending:
        moved = [_advance(shape, stage, made, travel_s) for stage in pending]
        if not any(moved):
            raise RuntimeError("the schedule waits for itself")
        pending = [stage for stage in reversed(pending) if stage.done < len(stage.groups)]


def _advance(
    shape: Pipeline, stage: _Stage, made: Made, travel_s: Sequence[Sequence[float]]
) -> bool:
    """Run groups of passes until an input is missing; whether any ran."""
    kind, stages, chunks, _ = shape
    end, order, first = stages * chunks, stage.passes.order, stage.done
    while stage.done < len(stage.groups):
        start_s, cause = stage.clock_s, None
        outputs = []
        for place in stage.groups[stage.done]:
            item = order[place]
            if item.part == "weight":
                continue
            position = chunk_position(kind, stage.stage, item.chunk, stages)
            source = position - 1 if item.forward else position + 1
            if 0 <= source < end:
                known = made.get((item.forward, source, item.micro_batch))
                if known is None:
                    return stage.done > first
                arrives_s = known[0] + travel_s[int(not item.forward)][position]
                if arrives_s > start_s:
                    start_s, cause = arrives_s, (known[1], not item.forward, position)
            outputs.append((item.forward, position, item.micro_batch))
        stage.clock_s = start_s + stage.seconds[stage.done]
        stage.waited_for.append(cause)
        for output in outputs:
            made[output] = (stage.clock_s, (stage.stage, stage.done))
        stage.done += 1
    return True


def _traced(shape: Pipeline, every: list[_Stage], last: _Stage) -> tuple[Floats, Floats, Floats]:
    """The passes that led to a stage's last one, counted: alone, in pairs, and messages."""
    kind, stages, chunks, _ = shape
    single, paired = (np.zeros((stages * chunks, KINDS)) for _ in range(2))
    hops = np.zeros((2, stages * chunks))
    step: Step | None = (last.stage, len(last.groups) - 1)
    while step is not None:
        stage, number = step
        own = every[stage]
        group = own.groups[number]
        counts = single if len(group) == 1 else paired
        for place in group:
            pass_kind = own.passes.kinds[own.passes.rows[place]]
            position = chunk_position(kind, stage, pass_kind.chunk, stages)
            counts[position, kind_number(pass_kind)] += 1
        step = (stage, number - 1) if number else None
        cause = own.waited_for[number]
        if cause is not None:
            step, backward, position = cause
            hops[int(backward), position] += 1
    return single, paired, hops
