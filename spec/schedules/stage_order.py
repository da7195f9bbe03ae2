"""Pipeline schedules as explicit orders of passes, for simulator and executor.

A *pass* is one micro-batch through one chunk (virtual stage) of a stage, forward or backward.
The order of a stage's passes and the location of chunks are part of the plan's meaning.

GPipe: all forwards, then all backwards (Huang et al., 2019, section 2.3).
1F1B: p - s - 1 forwards of warm-up on stage s, then one forward, one backward (Narayanan et
al., PipeDream-Flush, 2021a section 3.2).
Interleaved 1F1B: v chunks a stage, micro-batches in rounds of p (Narayanan et al., 2021b,
section 2.2); micro-batches must be a multiple of p.
Zero bubble, ZBV, DualPipe: with split backwards, see :mod:`zero_bubble`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Literal

from . import zero_bubble
from .passes import Pass as Pass

ScheduleKind = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipe"]
SCHEDULE_KINDS: tuple[ScheduleKind, ...] = ("gpipe", "1f1b", "interleaved")
"""Kinds with whole backwards."""
SPLIT_KINDS: tuple[ScheduleKind, ...] = ("zero_bubble", "zbv", "dualpipe")
"""Kinds that split the backward into gradients of inputs and of weights."""
ALL_KINDS: tuple[ScheduleKind, ...] = (*SCHEDULE_KINDS, *SPLIT_KINDS)
V_KINDS: tuple[ScheduleKind, ...] = ("zbv", "dualpipe")
"""Kinds whose two chunks a stage lie in a V."""


def chunk_location(kind: ScheduleKind, position: int, stages: int) -> tuple[int, int]:
    """``(stage, chunk)`` of the ``position``-th part of the model.

    Chunks go round the stages, or down and up again in a V: stage s then holds positions s and
    2p - 1 - s.
    """
    chunk, across = divmod(position, stages)
    return (stages - 1 - across if kind in V_KINDS and chunk % 2 else across), chunk


def chunk_position(kind: ScheduleKind, stage: int, chunk: int, stages: int) -> int:
    """Position in the model of a chunk of a stage.

    Inverse of :func:`chunk_location`.
    """
    return chunk * stages + (stages - 1 - stage if kind in V_KINDS and chunk % 2 else stage)


@lru_cache(maxsize=512)
def stage_order(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, micro_batches: int
) -> tuple[Pass, ...]:
    """The passes of ``stage`` in the order it runs them.

    Args:
        kind: schedule name.
        stage: 0-based stage number.
        stages: pipeline degree p.
        chunks: virtual stages a stage v (1 unless interleaved or in a V).
        micro_batches: micro-batches m of one step.
    """
    if kind == "gpipe":
        return _gpipe(chunks, micro_batches)
    if kind == "1f1b":
        return _one_f_one_b(stage, stages, micro_batches)
    if kind == "zero_bubble":
        return zero_bubble.zero_bubble(stage, stages, micro_batches)
    if kind == "zbv":
        return zero_bubble.zbv(stage, stages, micro_batches)
    if kind == "dualpipe":
        return zero_bubble.dualpipe(stage, stages, micro_batches)
    return _interleaved(stage, stages, chunks, micro_batches)


def _gpipe(chunks: int, micro_batches: int) -> tuple[Pass, ...]:
    forwards = [Pass(True, c, m) for c in range(chunks) for m in range(micro_batches)]
    backwards = [Pass(False, c, m) for c in reversed(range(chunks)) for m in range(micro_batches)]
    return tuple(forwards + backwards)


def _one_f_one_b(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    directions = _directions(stages, 1, micro_batches)
    return _weave(*directions, warm_up("1f1b", stage, stages, 1, micro_batches))


def _interleaved(stage: int, stages: int, chunks: int, micro_batches: int) -> tuple[Pass, ...]:
    directions = _directions(stages, chunks, micro_batches)
    return _weave(*directions, warm_up("interleaved", stage, stages, chunks, micro_batches))


def warm_up(kind: ScheduleKind, stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Forward passes before a stage alternates, one pass before a backward.

    1F1B and zero bubble: p - s - 1. Interleaved: (p - s - 1)·2 + (v - 1)·p (Narayanan et al.,
    2021b, section 2.2; Megatron-LM once ran all forwards first with p micro-batches, but the memory
    that its tests record shows that it no longer does). GPipe never alternates. In a V: one less
    than :func:`first_in_flight` counts.
    """
    total = chunks * micro_batches
    if kind in V_KINDS:
        return sum(first_in_flight(kind, stage, stages, chunks, micro_batches)) - 1
    if kind == "gpipe":
        return total
    if kind in ("1f1b", "zero_bubble"):
        return min(stages - stage - 1, total)
    return min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)


def first_in_flight(
    kind: ScheduleKind, stage: int, stages: int, chunks: int, micro_batches: int
) -> list[int]:
    """In-flight micro-batches of each chunk just before a stage's first backward pass.

    In a V the down-going chunk of stage s has 2p - s - 1 by then and the other s + 1: 2p
    everywhere, the activations of p whole micro-batches of a stage. DualPipe's last stage
    starts one more, overlapped with that backward.
    """
    if kind in V_KINDS:
        down = 2 * stages - stage - 1 + (kind == "dualpipe" and stage == stages - 1)
        return [min(down, micro_batches), min(stage + 1, micro_batches)]
    total = chunks * micro_batches
    forwards = min(warm_up(kind, stage, stages, chunks, micro_batches) + 1, total)
    if kind == "gpipe":
        return [micro_batches] * chunks
    if chunks == 1:
        return [forwards]
    rounds, extra = divmod(forwards, stages * chunks)
    return [rounds * stages + min(max(extra - c * stages, 0), stages) for c in range(chunks)]


@lru_cache(maxsize=8)
def _directions(stages: int, chunks: int, micro_batches: int) -> tuple[list[Pass], list[Pass]]:
    """All forward and all backward passes in order.

    P micro-batches on each chunk in turn.

    Cached, for every stage runs the same ones.
    """
    rounds = [range(m, min(m + stages, micro_batches)) for m in range(0, micro_batches, stages)]
    return (
        [Pass(True, c, m) for batches in rounds for c in range(chunks) for m in batches],
        [Pass(False, c, m) for batches in rounds for c in reversed(range(chunks)) for m in batches],
    )


def _weave(forwards: list[Pass], backwards: list[Pass], warm_up: int) -> tuple[Pass, ...]:
    order = forwards[:warm_up]
    order += chain.from_iterable(zip(forwards[warm_up:], backwards, strict=False))
    return tuple(order + backwards[len(forwards) - warm_up :])
