"""Events as torch's profiler gives them, made by hand: a device's work without a device."""

from __future__ import annotations

from dataclasses import dataclass

from torch._C._autograd import DeviceType


@dataclass(frozen=True, kw_only=True)
class Event:
    """One profiled event; times in ns. ``linked`` is the host operation that caused it."""

    label: str
    start: int
    end: int
    number: int = 0
    linked: int = 0
    stream: int = 0
    thread: int = 1
    cuda: bool = False
    annotation: bool = False
    asynchronous: bool = False

    def name(self) -> str:
        return self.label

    def start_ns(self) -> int:
        return self.start

    def end_ns(self) -> int:
        return self.end

    def start_thread_id(self) -> int:
        return self.thread

    def correlation_id(self) -> int:
        return self.number

    def linked_correlation_id(self) -> int:
        return self.linked

    def device_type(self) -> DeviceType:
        return DeviceType.CUDA if self.cuda else DeviceType.CPU

    def device_resource_id(self) -> int:
        return self.stream

    def is_user_annotation(self) -> bool:
        return self.annotation

    def is_async(self) -> bool:
        return self.asynchronous


def host(label: str, start: int, end: int, number: int = 0, thread: int = 1) -> Event:
    """An operation of torch on a thread of the host."""
    return Event(label=label, start=start, end=end, number=number, thread=thread)


def kernel(label: str, start: int, end: int, linked: int, stream: int = 7) -> Event:
    """Work of the device that operation ``linked`` of the host started."""
    return Event(label=label, start=start, end=end, linked=linked, stream=stream, cuda=True)
