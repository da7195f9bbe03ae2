"""The critical path of a pipeline whose passes take given times, as a chain.

Which passes it has tells where seconds count, and it stays a chain of every plan of the shape,
whatever its passes take. Stages run their passes in order; a pass waits for its input's message;
passes that overlap start and end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..costmodel.stage_passes import Together
from .chains import Chain, Floats, Pipeline, chain_of
from .pass_table import KINDS
from .play_order import PlayOrder, play_order

ABOUT = 0.05
"""Stages that end this fraction of the time before the last one end about as late."""
MOST_TRACED = 6
"""Stages whose chains the mean is of, about."""


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
    order = play_order(shape)
    seconds = [pass_s(stage, together) for stage, together in order.distinct]
    ends_s, causes = _played(order, seconds, [*travel_s[0], *travel_s[1]])
    clocks = [ends_s[group] for group in order.last]
    last = max(range(len(clocks)), key=lambda stage: (clocks[stage], stage))
    late = [stage for stage, clock_s in enumerate(clocks) if clock_s >= clocks[last] * (1 - ABOUT)]
    spread = dict.fromkeys([last, *late[:: max(1, len(late) // MOST_TRACED)]])
    traces = [_traced(order, causes, order.last[stage]) for stage in spread]
    found = [chain_of(*traces[0])]
    if len(traces) > 1:
        means = [sum(parts) / len(traces) for parts in zip(*traces, strict=True)]
        found.append(chain_of(means[0], means[1], means[2]))
    return clocks[last], found


def _played(
    order: PlayOrder, seconds: Sequence[float], travel_s: Sequence[float]
) -> tuple[list[float], list[int]]:
    """When each group ends, and the number of the input that it waited for; -1 for none."""
    ends_s = [0.0] * (len(order.kind) + 1)  # the last one stands for what was before the step
    causes = [-1] * len(order.kind)
    own_s = [seconds[kind] for kind in order.kind]
    ways_s = [*travel_s, 0.0]  # the last one is that of no message
    (ones, one_ways), (twos, two_ways) = order.inputs
    one_s, two_s = ([ways_s[way] for way in ways] for ways in (one_ways, two_ways))
    each = (own_s, order.before, ones, one_s, twos, two_s)
    for group, (group_s, before, one, one_way_s, two, two_way_s) in enumerate(
        zip(*each, strict=True)
    ):
        start_s = ends_s[before]
        arrives_s = ends_s[one] + one_way_s
        if arrives_s > start_s:
            start_s, causes[group] = arrives_s, 0
        if two >= 0:
            arrives_s = ends_s[two] + two_way_s
            if arrives_s > start_s:
                start_s, causes[group] = arrives_s, 1
        ends_s[group] = start_s + group_s
    return ends_s, causes


def _traced(order: PlayOrder, causes: Sequence[int], last: int) -> tuple[Floats, Floats, Floats]:
    """The passes that led to a group, counted: alone, in pairs, and messages."""
    groups = np.zeros(len(order.distinct), dtype=np.int64)
    hops = np.zeros(2 * order.positions)
    group = last
    while group >= 0:
        groups[order.kind[group]] += 1
        cause = causes[group]
        if cause < 0:
            group = order.before[group]
        else:
            sources, ways = order.inputs[cause]
            hops[ways[group]] += 1
            group = sources[group]
    single, paired = (np.zeros((order.positions, KINDS)) for _ in range(2))
    for number in groups.nonzero()[0].tolist():
        places = order.places[number]
        counts = single if len(places) == 1 else paired
        for place in places:
            counts[place] += groups[number]
    return single, paired, hops.reshape(2, -1)
