"""Segments of a step on an accelerator, named by launching host operations.

The host runs ahead, so a kernel has the term of the host segment that launched it, and host time
counts only while the device is idle. Without a host term (a graph launch of many kernels, a
compiled region) the kernel's name decides. Streams keep their numbers, so overlaps stay visible.
Tried on synthetic events in the profiler's format, not on a device.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ...spec.report.trace_marks import POST_RECEIVE, SEND
from .segments import MESSAGE, Operation, Segment

OWN_TERMS = (
    (re.compile(r"nccl|rccl", re.I), "exposed_dp"),
    (re.compile(r"^Memcpy (HtoD|DtoH)"), "host"),
    (re.compile(r"flash|fmha|attention|attn", re.I), "attention"),
    (re.compile(r"gemm|nvjet|cutlass|xmma|cublas|triton_tem", re.I), "matmul"),
)
"""What a kernel's name alone says of it, the first that fits; anything else is elementwise."""


class DeviceOperation(NamedTuple):
    """One device operation; ``launched`` is the host operation that started it."""

    name: str
    start_ns: int
    end_ns: int
    launched: Operation | None
    stream: int = 0


def device_segments(
    host: list[Segment], operations: list[DeviceOperation]
) -> tuple[list[Segment], dict[str, int]]:
    """Device segments, host idle-time segments, and send time of each message.

    ``host`` segments are ordered; ``operations`` lie within the step.
    """
    starts = [segment.start_ns for segment in host]
    kernels: list[Segment] = []
    sent_ns: dict[str, int] = {}
    for operation in sorted(operations, key=lambda o: (o.start_ns, o.end_ns)):
        if operation.launched is None:
            continue
        place = bisect_right(starts, operation.launched.start_ns) - 1
        if place < 0 or operation.launched.start_ns >= host[place].end_ns:
            continue
        around = host[place]
        if around.name.startswith(SEND + " "):
            sent_ns.setdefault(around.name.removeprefix(SEND).strip(), operation.start_ns)
        kernels.append(_device_segment(operation, around))
    busy = _joined((segment.start_ns, segment.end_ns) for segment in kernels)
    return sorted([*kernels, *_outside(host, busy)]), sent_ns


def _device_segment(operation: DeviceOperation, around: Segment) -> Segment:
    segment = around._replace(
        start_ns=operation.start_ns, end_ns=operation.end_ns, stream=operation.stream
    )
    if around.name.startswith(POST_RECEIVE):
        key = around.name.removeprefix(POST_RECEIVE).strip()
        return segment._replace(term=MESSAGE, key=key, name=operation.name)
    if around.term == "host":  # a copy or fill that dispatch hides, or a graph's kernel
        return segment._replace(term=own_term(operation.name), name=operation.name)
    return segment


def own_term(name: str) -> str:
    """Breakdown term given by a kernel's name."""
    return next((term for words, term in OWN_TERMS if words.search(name)), "elementwise")


def _joined(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in intervals:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _outside(host: list[Segment], busy: list[tuple[int, int]]) -> list[Segment]:
    """Parts of host segments with an idle device, as host time.

    Both inputs are ordered and free of overlaps.
    """
    parts: list[Segment] = []
    ends = [end for _, end in busy]
    for segment in host:
        clock_ns, number = segment.start_ns, bisect_right(ends, segment.start_ns)
        while number < len(busy) and busy[number][0] < segment.end_ns:
            start_ns, end_ns = busy[number]
            if start_ns > clock_ns:
                parts.append(segment._replace(start_ns=clock_ns, end_ns=start_ns))
            clock_ns = max(clock_ns, end_ns)
            number += 1
        if clock_ns < segment.end_ns:
            parts.append(segment._replace(start_ns=clock_ns))
    return [part._replace(term="host", key="") for part in parts]
