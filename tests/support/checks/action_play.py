"""Playing the action lists of all ranks against each other, as strictly as any backend may be.

A message moves only when both its ends are posted, and of one process group a rank moves one
message after the other in the order in which it posted them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from shardwright.executor.groups.process_groups import Channel, channel_of
from shardwright.executor.groups.rank_layout import stage_layout
from shardwright.executor.pipeline.actions import Action, stage_actions
from shardwright.executor.pipeline.routes import Route, chunk_routes
from shardwright.spec.plan.plan import Plan
from shardwright.spec.plan.send_buffers import send_buffer_release
from shardwright.spec.schedules.stage_order import Pass

End = tuple[int, int, Pass]
"""A message: source, target, the pass that needs it."""


class Rank(NamedTuple):
    """A rank's list, and its routes by chunk."""

    stage: int
    actions: tuple[Action, ...]
    routes: list[tuple[Route | None, Route | None]]

    def route(self, item: Pass, incoming: bool) -> Route | None:
        return self.routes[item.chunk][0 if item.forward == incoming else 1]


def rank_lists(plan: Plan) -> list[Rank]:
    """Every rank of a plan."""
    program = plan.program
    found = []
    for stage, (_, count) in enumerate(stage_layout(plan)):
        order = program.passes(stage)
        for local in range(count):
            routes = [
                chunk_routes(plan, stage, chunk, local) for chunk in range(program.chunks_per_stage)
            ]
            ends = {(f, c): r[0 if f else 1] for c, r in enumerate(routes) for f in (True, False)}
            outs = {(f, c): r[1 if f else 0] for c, r in enumerate(routes) for f in (True, False)}
            receives = {k for k, r in ends.items() if r}
            sends = {k for k, r in outs.items() if r}
            actions = stage_actions(order, receives, sends, send_buffer_release(program, stage))
            found.append(Rank(stage, actions, routes))
    return found


class Play:
    """The state of all ranks.

    ``waits_together`` makes a stage's ranks finish passes, and their reductions, together.
    """

    def __init__(self, plan: Plan, waits_together: bool) -> None:
        self.ranks = rank_lists(plan)
        self.waits_together = waits_together
        self.place = [0] * len(self.ranks)
        self.queues: dict[tuple[int, Channel], list[End]] = defaultdict(list)
        self.done: set[End] = set()
        self.passes = [0] * len(self.ranks)
        self.recent: list[list[tuple[int, list[End]]]] = [[] for _ in self.ranks]
        self.reached: dict[tuple[int, Action], set[int]] = defaultdict(set)
        self.computed: list[list[Pass]] = [[] for _ in self.ranks]

    def run(self) -> list[str]:
        """Play to the end; where each stuck rank is, empty if none is."""
        while True:
            moved = self._deliver()
            for rank in range(len(self.ranks)):
                while self.place[rank] < len(self.ranks[rank].actions) and self._try(rank):
                    self.place[rank] += 1
                    moved = True
            if not moved:
                break
        return [
            f"rank {number} at {rank.actions[at]}"
            for number, (rank, at) in enumerate(zip(self.ranks, self.place, strict=True))
            if at < len(rank.actions)
        ]

    def _deliver(self) -> bool:
        """Move messages that are first in the queues of both their ends."""
        moved = False
        for (rank, wire), queue in list(self.queues.items()):
            while queue and queue[0][0] == rank:
                message = queue[0]
                other = self.queues[message[1], wire]
                if not other or other[0] != message:
                    break
                queue.pop(0)
                other.pop(0)
                self.done.add(message)
                moved = True
        return moved

    def _try(self, number: int) -> bool:
        """Take a rank's next action if it can be taken."""
        rank = self.ranks[number]
        action = rank.actions[self.place[number]]
        item = action.item
        if action.kind == "post":
            for message in self._incoming(number, item):
                self._queue(number, message)
        elif action.kind == "receive":
            return all(message in self.done for message in self._incoming(number, item))
        elif action.kind == "send":
            sent = self._outgoing(number, item)
            for message in sent:
                self._queue(number, message)
            self.recent[number].append((self.passes[number] + action.passes, sent))
        elif action.kind == "wait_sent":
            now, recent = self.passes[number] + 1, self.recent[number]
            if any(m not in self.done for until, sent in recent if until <= now for m in sent):
                return False
            self.passes[number] = now
            self.recent[number] = [(until, sent) for until, sent in recent if until > now]
        else:
            return self._compute(number, action)
        return True

    def _compute(self, number: int, action: Action) -> bool:
        stage = self.ranks[number].stage
        self.reached[stage, action].add(number)
        width = sum(rank.stage == stage for rank in self.ranks)
        if self.waits_together and len(self.reached[stage, action]) < width:
            return False
        if action.kind != "end_backward":
            self.computed[number].append(action.item)
        return True

    def _queue(self, number: int, message: End) -> None:
        source, target, item = message
        wire = channel_of(item.forward, self.ranks[source].stage, self.ranks[target].stage)
        self.queues[number, wire].append(message)

    def _incoming(self, number: int, item: Pass) -> list[End]:
        route = self.ranks[number].route(item, incoming=True)
        assert route is not None
        needs = item.message
        return [(p.peer, number, needs) for p in route.receives if p.peer != number]

    def _outgoing(self, number: int, item: Pass) -> list[End]:
        route = self.ranks[number].route(item, incoming=False)
        assert route is not None
        needs = Pass(item.forward, route.chunk, item.micro_batch)
        return [(number, p.peer, needs) for p in route.sends if p.peer != number]
