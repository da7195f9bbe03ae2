"""Actions of a rank in a step: compute, receive, send, reduce, free.

The list follows the passes of the stage's schedule. Around each pass it starts receiving the *next*
one's input, so that messages overlap compute, and waits for the messages of the pass before the
last, so that few are in flight; V-shaped schedules keep some longer (``spec.plan.send_buffers``).
A gradient leaves before the rank waits for reductions of the pass that made it, or along a pipeline
each stage would wait for those of all behind it. Passes that overlap in a schedule run serially, in
its order.

No rank deadlocks on any backend, even where a message moves only once both ends are posted. Take
each stage as one actor that waits whenever one of its ranks would; its ranks reduce together, after
their sends. Two neighbors run their common passes in one order, each receives one pass ahead, and
sends are waited for a pass later, or when the receiver is bound to be there; so actors are ends of
ordered queues, which no schedule of ``spec.schedules`` closes to a ring.
``tests/executor/test_actions.py`` plays all ranks' lists against each other.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from ...spec.plan.send_buffers import PASSES_UNTIL_FREE
from ...spec.schedules.stage_order import Pass

ActionKind = Literal["post", "wait_sent", "receive", "forward", "backward", "send", "end_backward"]


class Action(NamedTuple):
    """One action of a rank for a pass.

    ``post``: start receiving the pass's input. ``wait_sent``: wait for due sends, usually of the
    pass before ``item``'s predecessor. ``receive``: wait for what was posted. ``forward``,
    ``backward``: compute; ``reduces``: a chunk's last backward, which reduces its gradients.
    ``send``: start sending the output, due ``passes`` passes later. ``end_backward``: finish
    reductions that the message did not wait for. Weight gradients, the second part of a split
    backward, have no messages and end themselves.
    """

    kind: ActionKind
    item: Pass
    reduces: bool = False
    passes: int = PASSES_UNTIL_FREE


def stage_actions(
    order: Sequence[Pass],
    receives: Container[tuple[bool, int]],
    sends: Container[tuple[bool, int]],
    until: Sequence[int] | None = None,
) -> tuple[Action, ...]:
    """The actions of a rank in one step.

    Args:
        order: the passes of its stage, from ``spec.schedules.stage_order``.
        receives: ``(forward, chunk)`` of passes with input from a neighboring chunk.
        sends: those with output to one.
        until: from ``spec.plan.send_buffers``.
    """
    until_pass = (
        range(PASSES_UNTIL_FREE, len(order) + PASSES_UNTIL_FREE) if until is None else until
    )
    return tuple(_actions(order, receives, sends, until_pass))


def _actions(
    order: Sequence[Pass],
    receives: Container[tuple[bool, int]],
    sends: Container[tuple[bool, int]],
    until: Sequence[int],
) -> Iterator[Action]:
    last = {item.chunk: item for item in order if not item.forward}
    if order[0][:2] in receives:
        yield Action("post", order[0])
    for number, (item, following) in enumerate(pairwise([*order, None])):
        if item is None:
            continue
        yield Action("wait_sent", item)
        if following is not None and following.exchanges_messages and following[:2] in receives:
            yield Action("post", following)
        if item.exchanges_messages and item[:2] in receives:
            yield Action("receive", item)
        if item.forward:
            yield Action("forward", item)
        else:
            yield Action("backward", item, reduces=item == last[item.chunk])
        if item.exchanges_messages and item[:2] in sends:
            yield Action("send", item, passes=until[number] - number)
        if not item.forward and item.part != "weight":
            yield Action("end_backward", item, reduces=item == last[item.chunk])
    for _ in range(PASSES_UNTIL_FREE):
        yield Action("wait_sent", order[-1])
