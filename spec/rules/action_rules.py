"""When an order of passes that a plan spells out is legal.

An order is one that runs on any backend and that the simulator prices as it runs: every pass of
every micro-batch once; those of a chunk in the order of micro-batches, so that the first finds no
gradients and the last completes them; messages between two stages in one order on both sides;
and no pass that waits for itself. The schedule's kind then says how many chunks a stage has and
where they lie, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..plan.send_buffers import deadlock_at
from ..schedules.action_text import format_actions, parse_actions
from ..schedules.passes import Pass
from ..schedules.stage_order import ScheduleKind, chunk_location, chunk_position


def action_order_violation(
    kind: ScheduleKind, lines: Sequence[str], stages: int, chunks: int, micro_batches: int
) -> str | None:
    """Why written orders are illegal for a pipeline; None if they are legal.

    Args:
        kind: of the schedule, which says where chunks lie.
        lines: one a stage.
        stages: pipeline degree.
        chunks: virtual stages a stage.
        micro_batches: of a step.
    """
    if len(lines) != stages:
        return f"{len(lines)} orders for {stages} stages"
    try:
        orders = [parse_actions(line) for line in lines]
    except InputError as error:
        return f"{error.given} is none of the {error.allowed}"
    for stage, order in enumerate(orders):
        if reason := _passes_reason(order, chunks, micro_batches):
            return f"stage {stage}: {reason}"
    return _messages_reason(kind, orders) or _stuck_reason(kind, orders)


def _passes_reason(order: tuple[Pass, ...], chunks: int, micro_batches: int) -> str | None:
    """What is wrong with the passes of one stage alone."""
    done = {(c, step): 0 for c in range(chunks) for step in ("F", "I", "W")}
    for item in order:
        word = format_actions((item,))
        if item.chunk >= chunks or item.micro_batch >= micro_batches:
            return f"{word} is not among {chunks} chunks and {micro_batches} micro-batches"
        steps = "F" if item.forward else {"whole": "IW", "input": "I", "weight": "W"}[item.part]
        for step in steps:
            if item.micro_batch != done[item.chunk, step]:
                return f"{word} comes twice, or before an earlier micro-batch of its chunk"
            done[item.chunk, step] += 1
        ahead = {"I": "F", "W": "I"}.get(steps[0])
        if ahead is not None and done[item.chunk, ahead] <= item.micro_batch:
            return f"{word} comes before {ahead}{item.chunk}.{item.micro_batch}"
    for (chunk, step), count in done.items():
        if count != micro_batches:
            name = {"F": "forwards", "I": "backwards", "W": "gradients of weights"}[step]
            return f"chunk {chunk} has {count} {name} of {micro_batches} micro-batches"
    return None


def _messages_reason(kind: ScheduleKind, orders: list[tuple[Pass, ...]]) -> str | None:
    """What crosses between two stages one way must be made and taken in one order."""
    stages = len(orders)
    last = stages * (1 + max(item.chunk for item in orders[0])) - 1
    made: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
    taken: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
    for stage, order in enumerate(orders):
        for item in order:
            if not item.exchanges_messages:
                continue
            position = chunk_position(kind, stage, item.chunk, stages)
            ahead = 1 if item.forward else -1
            if 0 <= position + ahead <= last:
                beyond = chunk_location(kind, position + ahead, stages)[0]
                made.setdefault((item.forward, stage, beyond), []).append(
                    (position + ahead, item.micro_batch)
                )
            if 0 <= position - ahead <= last:
                before = chunk_location(kind, position - ahead, stages)[0]
                taken.setdefault((item.forward, before, stage), []).append(
                    (position, item.micro_batch)
                )
    for (forward, source, target), messages in made.items():
        if source != target and taken[forward, source, target] != messages:
            what = "activations" if forward else "gradients"
            return f"stage {target} takes {what} of stage {source} in another order than they come"
    return None


def _stuck_reason(kind: ScheduleKind, orders: list[tuple[Pass, ...]]) -> str | None:
    found = deadlock_at(kind, orders)
    if found is None:
        return None
    stage, item = found
    return f"stage {stage} waits at {format_actions((item,))} for what waits for it"


__all__ = ["action_order_violation"]
