"""The critical path of a pipeline whose passes take given times, as a chain.

Which passes it has tells where seconds count, and it stays a chain of every plan of the shape,
whatever its passes take. Stages run their passes in order; a pass waits for its input's message;
passes that overlap start and end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...costmodel.simulation.pass_order import NONE
from ...costmodel.simulation.pipeline_timing import group_ends_s, group_starts_s
from ..tables.pass_kinds import KINDS
from .pass_chains import Chain, Floats, Pipeline, make_chain
from .pass_order import PassGroup, PassGroupOrder, pass_group_order

TIE_FRACTION = 0.05
"""Stages that end this fraction of the time before the last one end about as late."""
MAX_TRACED = 6
"""Stages whose chains the mean is of, about."""


def critical_chains(
    shape: Pipeline, pass_s: Callable[[PassGroup], float], travel_s: Sequence[Sequence[float]]
) -> tuple[float, list[Chain]]:
    """Seconds of all passes, the chain that takes that long, and the mean of those about as long.

    Stages that are alike end about at the same time. What only the last of them would have on its
    chain, such as the reduction of its gradients, the mean has of all.

    Args:
        shape: schedule, stages, chunks a stage, micro-batches.
        pass_s: seconds of passes that start together.
        travel_s: seconds of the message into each position, going forward and backward.
    """
    order = pass_group_order(shape)
    seconds = [pass_s(places) for places in order.places]
    played = _PipelineTiming(order, seconds, [*travel_s[0], *travel_s[1]])
    clocks = [played.ends_s[group] for group in order.last]
    last = max(range(len(clocks)), key=lambda stage: (clocks[stage], stage))
    late = [
        stage
        for stage, clock_s in enumerate(clocks)
        if clock_s >= clocks[last] * (1 - TIE_FRACTION)
    ]
    spread = dict.fromkeys([last, *late[:: max(1, len(late) // MAX_TRACED)]])
    traces = [played.traced(order.last[stage]) for stage in spread]
    found = [make_chain(*traces[0])]
    if len(traces) > 1:
        means = [sum(parts) / len(traces) for parts in zip(*traces, strict=True)]
        found.append(make_chain(means[0], means[1], means[2]))
    return clocks[last], found


class _PipelineTiming:
    """When each group of passes ends, and what it waited for.

    Args:
        order: of the groups.
        seconds: of each kind of group.
        travel_s: seconds of each message.
    """

    def __init__(
        self, order: PassGroupOrder, seconds: Sequence[float], travel_s: Sequence[float]
    ) -> None:
        self.play = order
        kinds = order.order.kinds
        ways_s = np.array([*travel_s, 0.0])  # the last one is that of no message
        travels_s = ways_s[order.messages][:, kinds]
        times_s = np.array(seconds)[kinds].tolist()
        inputs = list(zip(order.sources, travels_s.tolist(), strict=True))
        self.ends_s = group_ends_s(order.before, inputs, times_s, [0.0] * len(times_s))
        _, self._waiting = group_starts_s(order.order, np.array(self.ends_s), list(travels_s))
        came_from = order.order.sources[self._waiting, np.arange(len(kinds))]
        self._causes = np.where(self._waiting < 0, order.order.before, came_from).tolist()

    def traced(self, last: int) -> tuple[Floats, Floats, Floats]:
        """The passes that led to a group, counted: alone, in pairs, and messages."""
        path, group, causes = [], last, self._causes
        while group != NONE:
            path.append(group - 1)
            group = causes[group - 1]
        play, places = self.play, np.array(path)
        kinds, waiting = play.order.kinds[places], self._waiting[places]
        groups = np.bincount(kinds, minlength=len(play.places))
        messages = play.messages[waiting, kinds][waiting >= 0]
        hops = np.bincount(messages, minlength=2 * play.positions)
        single, paired = (np.zeros((play.positions, KINDS)) for _ in range(2))
        for number in groups.nonzero()[0].tolist():
            own = play.places[number]
            counts = single if len(own) == 1 else paired
            for place in own:
                counts[place] += groups[number]
        return single, paired, hops.astype(np.float64).reshape(2, -1)
