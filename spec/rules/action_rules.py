"""Rules for explicit schedule actions.

A legal order runs on any backend as simulated: every pass of every micro-batch once; those of a
chunk in the order of micro-batches, so that the first finds no gradients and the last completes
them; messages between two stages in one order on both sides; no pass that waits for itself. The
schedule's kind then only gives number and location of chunks.
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
    """Reason why explicit actions are illegal for a pipeline, or None."""
    if len(lines) != stages:
        return f"{len(lines)} orders for {stages} stages"
    try:
        orders = [parse_actions(line) for line in lines]
    except InputError as error:
        return f"{error.given} is none of the {error.allowed}"
    for stage, order in enumerate(orders):
        if reason := _passes_violation(order, chunks, micro_batches):
            return f"stage {stage}: {reason}"
    return _messages_violation(kind, orders) or _deadlock_violation(kind, orders)


def _passes_violation(order: tuple[Pass, ...], chunks: int, micro_batches: int) -> str | None:
    """Violation by the passes of one stage alone."""
    counts = {(c, step): 0 for c in range(chunks) for step in ("F", "I", "W")}
    for pass_ in order:
        word = format_actions((pass_,))
        if pass_.chunk >= chunks or pass_.micro_batch >= micro_batches:
            return f"{word} is not among {chunks} chunks and {micro_batches} micro-batches"
        steps = "F" if pass_.forward else {"whole": "IW", "input": "I", "weight": "W"}[pass_.part]
        for step in steps:
            if pass_.micro_batch != counts[pass_.chunk, step]:
                return f"{word} comes twice, or before an earlier micro-batch of its chunk"
            counts[pass_.chunk, step] += 1
        prerequisite = {"I": "F", "W": "I"}.get(steps[0])
        if prerequisite is not None and counts[pass_.chunk, prerequisite] <= pass_.micro_batch:
            return f"{word} comes before {prerequisite}{pass_.chunk}.{pass_.micro_batch}"
    for (chunk, step), count in counts.items():
        if count != micro_batches:
            name = {"F": "forwards", "I": "backwards", "W": "gradients of weights"}[step]
            return f"chunk {chunk} has {count} {name} of {micro_batches} micro-batches"
    return None


def _messages_violation(kind: ScheduleKind, orders: list[tuple[Pass, ...]]) -> str | None:
    """Violation by messages sent and received in different orders."""
    stages = len(orders)
    last = stages * (1 + max(pass_.chunk for pass_ in orders[0])) - 1
    sent: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
    received: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
    for stage, order in enumerate(orders):
        for pass_ in order:
            if not pass_.exchanges_messages:
                continue
            position = chunk_position(kind, stage, pass_.chunk, stages)
            step = 1 if pass_.forward else -1
            if 0 <= position + step <= last:
                target_stage = chunk_location(kind, position + step, stages)[0]
                sent.setdefault((pass_.forward, stage, target_stage), []).append(
                    (position + step, pass_.micro_batch)
                )
            if 0 <= position - step <= last:
                source_stage = chunk_location(kind, position - step, stages)[0]
                received.setdefault((pass_.forward, source_stage, stage), []).append(
                    (position, pass_.micro_batch)
                )
    for (forward, source, target), messages in sent.items():
        if source != target and received[forward, source, target] != messages:
            content = "activations" if forward else "gradients"
            return (
                f"stage {target} takes {content} of stage {source} in another order than they come"
            )
    return None


def _deadlock_violation(kind: ScheduleKind, orders: list[tuple[Pass, ...]]) -> str | None:
    deadlock = deadlock_at(kind, orders)
    if deadlock is None:
        return None
    stage, pass_ = deadlock
    return f"stage {stage} waits at {format_actions((pass_,))} for what waits for it"


__all__ = ["action_order_violation"]
