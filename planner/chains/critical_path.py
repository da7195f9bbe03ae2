"""Critical path of a pipeline with known pass times, as a chain.

It shows where seconds count, and stays a chain of every plan of the shape. Stages run their passes
in order; a pass waits for its input's message, which leaves before the tail of the pass that sends
it; overlapping passes start and end together. A stage's reductions follow all of its passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...costmodel.simulation.pass_order import NONE
from ...costmodel.simulation.pipeline_timing import (
    group_ends_s,
    group_starts_s,
    message_delays_s,
)
from ..tables.arrays import Floats
from ..tables.pass_kinds import KINDS, STEP_END, UNTIL_MESSAGE
from .pass_chains import Chain, Pipeline, make_chain
from .pass_order import PassGroup, PassGroupOrder, pass_group_order

TIE_FRACTION = 0.05
"""Stages that end this fraction of the time before the last one end about as late."""
MAX_TRACED = 6
"""Stages whose chains the mean is of, about."""


class GroupSeconds(NamedTuple):
    """Seconds of passes that start together, and of their tail after the message."""

    time_s: float
    tail_s: float


def critical_chains(
    shape: Pipeline,
    pass_s: Callable[[PassGroup], GroupSeconds],
    travel_s: Sequence[Sequence[float]],
) -> tuple[float, list[Chain]]:
    """Seconds of all passes, critical path, and mean of near-critical paths.

    Like stages end at about the same time. The chain of the last alone would hold, say, its
    gradient reduction; the mean holds that of all.

    Args:
        shape: schedule, stages, chunks a stage, micro-batches.
        pass_s: seconds of passes that start together, and of a position's last reductions.
        travel_s: seconds of the message into each position, forward and backward.
    """
    order = pass_group_order(shape)
    seconds = [pass_s(group) for group in order.distinct]
    timing = _PipelineTiming(order, seconds, [*travel_s[0], *travel_s[1]])
    ends_s = [
        timing.ends_s[group] + sum(pass_s(((position, STEP_END),)).time_s for position in positions)
        for group, positions in zip(order.last, order.stage_positions, strict=True)
    ]
    last = max(range(len(ends_s)), key=lambda stage: (ends_s[stage], stage))
    late = [
        stage for stage, end_s in enumerate(ends_s) if end_s >= ends_s[last] * (1 - TIE_FRACTION)
    ]
    sample = dict.fromkeys([last, *late[:: max(1, len(late) // MAX_TRACED)]])
    traces = [timing.trace(stage) for stage in sample]
    critical = [make_chain(*traces[0])]
    if len(traces) > 1:
        means = [sum(counts) / len(traces) for counts in zip(*traces, strict=True)]
        critical.append(make_chain(means[0], means[1], means[2]))
    return ends_s[last], critical


class _PipelineTiming:
    """End and predecessor of each group of passes."""

    def __init__(
        self, order: PassGroupOrder, seconds: Sequence[GroupSeconds], travel_s: Sequence[float]
    ) -> None:
        self._groups = order
        kinds = order.order.kinds
        message_s = np.array([*travel_s, 0.0])  # the last one is that of no message
        times_s, tails_s = np.array(seconds)[kinds].T
        waits_s = message_delays_s(order.order, list(message_s[order.messages][:, kinds]), -tails_s)
        inputs = [(s, w.tolist()) for s, w in zip(order.sources, waits_s, strict=True)]
        self.ends_s = group_ends_s(order.before, inputs, times_s.tolist(), [0.0] * len(times_s))
        _, self._waiting = group_starts_s(order.order, np.array(self.ends_s), waits_s)
        came_from = order.order.sources[self._waiting, np.arange(len(kinds))]
        self._causes = np.where(self._waiting < 0, order.order.before, came_from).tolist()

    def trace(self, stage: int) -> tuple[Floats, Floats, Floats]:
        """Pass counts on the path to a stage's end: alone, in pairs, and messages."""
        steps, group, causes = [], self._groups.last[stage], self._causes
        while group != NONE:
            steps.append(group - 1)
            group = causes[group - 1]
        groups, path = self._groups, np.array(steps)
        kinds, waiting = groups.order.kinds[path], self._waiting[path]
        sends = np.concatenate([[False], waiting[:-1] >= 0])
        messages = groups.messages[waiting, kinds][waiting >= 0]
        hops = np.bincount(messages, minlength=2 * groups.positions)
        single, paired = (np.zeros((groups.positions, KINDS)) for _ in range(2))
        for mask, kind_of in ((~sends, np.arange(KINDS)), (sends, UNTIL_MESSAGE)):
            group_counts = np.bincount(kinds[mask], minlength=len(groups.distinct))
            for number in group_counts.nonzero()[0].tolist():
                passes = groups.distinct[number]
                counts = single if len(passes) == 1 else paired
                for position, kind in passes:
                    counted = kind_of[kind] if len(passes) == 1 else kind
                    counts[position, counted] += group_counts[number]
        single[groups.stage_positions[stage], STEP_END] += 1
        return single, paired, hops.astype(np.float64).reshape(2, -1)
