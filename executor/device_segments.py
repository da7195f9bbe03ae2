"""A step's segments on an accelerator: its kernels, named by the host operations that launch them.

The host runs ahead of the device, so a kernel's term is that of the host's segment in which it
was launched, and the host's own time counts only while the device does nothing. Written after
the profiler's event format; it has been tried on synthetic events, not on a device.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ..spec.marks import POST_RECEIVE, SEND
from .segments import MESSAGE, Operation, Segment

COMMUNICATION_KERNELS = "nccl"


class DeviceOperation(NamedTuple):
    """One operation of the device; ``launched`` is the host's operation that started it."""

    name: str
    start_ns: int
    end_ns: int
    launched: Operation | None


def device_segments(
    host: list[Segment], operations: list[DeviceOperation]
) -> tuple[list[Segment], dict[str, int]]:
    """The device's segments with the host's idle-time ones, and when each message was sent.

    Args:
        host: segments of the host's thread, in order.
        operations: of the device, within the step.
    """
    starts = [segment.start_ns for segment in host]
    found: list[Segment] = []
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
        found.append(_device_segment(operation, around))
    busy = [(segment.start_ns, segment.end_ns) for segment in found]
    idle = [part for segment in host for part in _outside(segment, busy)]
    return sorted([*found, *idle]), sent_ns


def _device_segment(operation: DeviceOperation, around: Segment) -> Segment:
    segment = around._replace(start_ns=operation.start_ns, end_ns=operation.end_ns)
    if around.name.startswith(POST_RECEIVE):
        key = around.name.removeprefix(POST_RECEIVE).strip()
        return segment._replace(term=MESSAGE, key=key, name=operation.name)
    if around.term == "host":  # a copy or fill that the host's dispatch hides
        wire = operation.name.lower().startswith(COMMUNICATION_KERNELS)
        return segment._replace(term="exposed_dp" if wire else "elementwise", name=operation.name)
    return segment


def _outside(segment: Segment, busy: list[tuple[int, int]]) -> list[Segment]:
    """The parts of a host segment in which the device does nothing, as host time."""
    parts: list[Segment] = []
    clock_ns = segment.start_ns
    for start_ns, end_ns in busy:
        if end_ns <= clock_ns:
            continue
        if start_ns >= segment.end_ns:
            break
        if start_ns > clock_ns:
            parts.append(segment._replace(start_ns=clock_ns, end_ns=start_ns))
        clock_ns = max(clock_ns, end_ns)
    if clock_ns < segment.end_ns:
        parts.append(segment._replace(start_ns=clock_ns))
    return [part._replace(term="host", key="") for part in parts]
