"""Seconds by breakdown term from one rank thread's operations.

The innermost meaningful operation decides: a communication mark, a kernel (views and allocations
are host work), the surrounding recomputation or update. Uncovered time is the host's. Needs no
torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...spec.report.trace_marks import (
    COMMUNICATE_CP,
    COMMUNICATE_EP,
    COMMUNICATE_NORM,
    COMMUNICATE_SUMS,
    COMMUNICATE_TP,
    PASS,
    POST_RECEIVE,
    READ_DATA,
    RECEIVE,
    RECOMPUTE,
    SEND,
    STEP,
    TECHNIQUE,
    UPDATE,
    WAIT_SEND,
)
from ...spec.report.work_items import ATTENTIONS, MATMULS, kernel_name

NORM, MESSAGE = "norm", "message"
"""Kinds of waiting whose term depends on other ranks too; see :mod:`timeline`."""

FSDP_TRAFFIC = ("FSDP::all_gather (", "FSDP::post_backward_reduce", "FSDP::post_backward_rs_wait")
# fmt: off
HOST_OPERATIONS = frozenset(
    {
        "view", "_unsafe_view", "unsafe_view", "as_strided", "slice", "narrow", "select", "t",
        "transpose", "permute", "expand", "unsqueeze", "squeeze", "split", "split_with_sizes",
        "chunk", "detach", "alias", "empty", "empty_like", "empty_strided", "new_empty",
        "new_empty_strided", "resize_", "set_", "movedim", "unflatten", "flatten", "reshape",
        "item", "_local_scalar_dense", "is_nonzero", "lift_fresh", "unbind", "result_type",
        "to", "contiguous",
    }
)
# fmt: on
"""aten operations that move no data themselves; their own time is dispatch."""


class Operation(NamedTuple):
    """One profiled operation of a thread; nanoseconds on the machine's clock."""

    name: str
    start_ns: int
    end_ns: int


class Segment(NamedTuple):
    """A stretch of a thread's or device's time with one term.

    ``key``: the message that a ``message`` segment waits for; ``within``: the pass; ``stream``: the
    device's stream, None for the host's thread.
    """

    start_ns: int
    end_ns: int
    term: str
    name: str
    within: str
    key: str = ""
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class _Context:
    """The context of a moment, from the operations around it."""

    area: str = ""
    key: str = ""
    term: str = ""
    name: str = ""
    within: str = ""
    recompute: bool = False
    update: bool = False


@dataclass(slots=True)
class _Frame:
    """An open operation: its context, and whether a collective has begun."""

    end_ns: int
    context: _Context
    communicated: bool = False


def segments(operations: Iterable[Operation]) -> list[Segment]:
    """The step's time cut by term, in order, without gaps.

    Operations of the passes' thread, properly nested; those outside the operation named ``step``
    are ignored.
    """
    merged: list[Segment] = []
    for piece in _pieces(sorted(operations, key=lambda o: (o.start_ns, -o.end_ns))):
        if merged and _continues(merged[-1], piece):
            merged[-1] = merged[-1]._replace(end_ns=piece.end_ns)
        elif piece.end_ns > piece.start_ns:
            merged.append(piece)
    return merged


def _continues(before: Segment, piece: Segment) -> bool:
    same = (before.term, before.within, before.key) == (piece.term, piece.within, piece.key)
    return same and before.end_ns == piece.start_ns


def _pieces(operations: list[Operation]) -> Iterator[Segment]:
    stack: list[_Frame] = []
    clock_ns = 0
    for operation in operations:
        if not stack:
            if operation.name != STEP:
                continue
            clock_ns = operation.start_ns
        while stack and stack[-1].end_ns <= operation.start_ns:
            frame = stack.pop()
            yield _segment(clock_ns, frame.end_ns, frame)
            clock_ns = max(clock_ns, frame.end_ns)
        if stack:
            yield _segment(clock_ns, operation.start_ns, stack[-1])
            clock_ns = operation.start_ns
            if operation.name.startswith("c10d::"):
                for frame in stack:
                    frame.communicated = True
        elif operation.name != STEP:
            continue
        before = stack[-1].context if stack else _Context()
        end_ns = min(operation.end_ns, stack[-1].end_ns) if stack else operation.end_ns
        inherits = bool(stack) and before.area == "exposed_dp" and stack[-1].communicated
        stack.append(_Frame(end_ns, _enter(before, operation.name), inherits))
    while stack:
        frame = stack.pop()
        yield _segment(clock_ns, frame.end_ns, frame)
        clock_ns = max(clock_ns, frame.end_ns)


def _enter(around: _Context, name: str) -> _Context:
    """The context inside an operation."""
    word = name.partition(" ")[0]
    if name in (COMMUNICATE_TP, COMMUNICATE_SUMS):
        return replace(around, area="exposed_tp", name=name)
    if name == COMMUNICATE_CP:
        return replace(around, area="exposed_cp", name=name)
    if name == COMMUNICATE_EP:
        return replace(around, area="exposed_ep", name=name)
    if name == COMMUNICATE_NORM:
        return replace(around, area=NORM, name=name)
    if name.startswith(RECEIVE):
        return replace(around, area=MESSAGE, key=name.removeprefix(RECEIVE).strip(), name=name)
    if name.startswith(POST_RECEIVE):
        return replace(around, area="host", name=name)
    if name == WAIT_SEND or word == SEND:
        return replace(around, area="exposed_pp", name=name)
    if name.startswith(FSDP_TRAFFIC):
        return replace(around, area="exposed_dp", name=name.partition(" (")[0])
    if name == READ_DATA:
        return replace(around, area="host", name=name)
    if name == RECOMPUTE:
        return replace(around, recompute=True)
    if name == UPDATE:
        return replace(around, area="", update=True, within=name)
    if word == TECHNIQUE:
        technique = name.removeprefix(TECHNIQUE).strip()
        return replace(around, area=technique, name=technique)
    if word == PASS:
        return replace(around, within=name)
    return _enter_kernel(around, name)


def _enter_kernel(around: _Context, name: str) -> _Context:
    library, _, operation = name.partition("::")
    if library not in ("aten", "fsdp", "prims", "shardwright") or operation in HOST_OPERATIONS:
        return around
    kernel = kernel_name(operation)
    if kernel in MATMULS:
        return replace(around, term="matmul", name=kernel)
    if kernel in ATTENTIONS:
        return replace(around, term="attention", name=kernel)
    return around if around.term else replace(around, term="elementwise", name=kernel)


def _segment(start_ns: int, end_ns: int, frame: _Frame) -> Segment:
    context = frame.context
    term = _term(context, frame.communicated)
    name = context.name or "host"
    return Segment(start_ns, max(start_ns, end_ns), term, name, context.within, context.key)


def _term(context: _Context, communicated: bool) -> str:
    """The term of a moment inside these operations."""
    if context.area == "exposed_dp":
        if context.term:
            return "optimizer" if context.update else context.term
        return "exposed_dp" if communicated else "host"
    if context.area:
        return context.area
    if context.update:
        return "optimizer"
    if context.term:
        return "recompute" if context.recompute else context.term
    return "host"


def send_times(operations: Iterable[Operation]) -> dict[str, int]:
    """Return send times by ``pass to rank``."""
    start = SEND + " "
    return {o.name.removeprefix(start): o.start_ns for o in operations if o.name.startswith(start)}
