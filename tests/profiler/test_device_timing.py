"""Times of device work whose launches cost the host more: on a device and a host of stand-ins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardwright.profiler.timing import device_timing
from shardwright.profiler.timing.device_timing import WARM_UP_RUNS, time_on

GPU = torch.device("cuda", 1)
CLOCK = 1.98e9
"""Cycles a second of the made-up device: less than any pause is counted in."""


class Machine:
    """A host and a device that works through a queue in order, both on made-up clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, told_khz: int | None = None) -> None:
        self.host_s = self.device_s = self.slept_s = 0.0
        self.current: list[torch.device] = []
        self.runs = 0
        machine = self
        facts: dict[str, Any] = {} if told_khz is None else {"clock_rate": told_khz}

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                assert machine.current == [GPU], "an event belongs to the current device"

            def record(self) -> None:
                machine.launch(2e-6, 0.0)
                self.moment_s = machine.device_s

            def elapsed_time(self, end: Event) -> float:
                assert machine.host_s >= end.moment_s, "read before it is over"
                return 1e3 * (end.moment_s - self.moment_s)

        @contextlib.contextmanager
        def current(device: torch.device) -> Any:
            self.current.append(device)
            yield
            self.current.pop()

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "device", current)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "_sleep", self.sleep)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**facts)
        )
        clock = SimpleNamespace(perf_counter=lambda: self.host_s)
        monkeypatch.setattr(device_timing, "time", clock)

    def launch(self, host_s: float, device_s: float) -> None:
        self.host_s += host_s
        self.device_s = max(self.device_s, self.host_s) + device_s

    def synchronize(self, device: torch.device) -> None:
        assert device == GPU
        self.host_s = max(self.host_s, self.device_s)

    def sleep(self, cycles: int) -> None:
        assert isinstance(cycles, int)
        assert self.current == [GPU]
        self.slept_s = max(self.slept_s, cycles / CLOCK)
        self.launch(5e-6, cycles / CLOCK)

    def work(self, host_s: float, device_s: float, first_s: float = 0.0) -> Callable[[], None]:
        """Launches of ``host_s`` in all, the first of them longer; then so much device work."""

        def run() -> None:
            self.runs += 1
            for _ in range(4):  # kernels
                self.launch((host_s + (first_s if self.runs == 1 else 0.0)) / 4, device_s / 4)

        return run


@pytest.mark.parametrize("told_khz", [None, 1_980_000])
@pytest.mark.parametrize("host_s", [3e-6, 1e-4, 2e-3, 5e-2])
@pytest.mark.parametrize("device_s", [2e-6, 4e-5, 3e-3])
def test_the_device_s_time_is_told_however_slow_the_host(
    monkeypatch: pytest.MonkeyPatch, device_s: float, host_s: float, told_khz: int | None
) -> None:
    machine = Machine(monkeypatch, told_khz)
    found = time_on(GPU, [machine.work(host_s, device_s, first_s=3.0)])
    assert found.median_s == pytest.approx(device_s)
    assert found.spread == pytest.approx(0.0, abs=1e-6)
    assert machine.runs == 2 * WARM_UP_RUNS + found.runs
    assert machine.current == []


def test_a_pause_is_short_and_only_as_long_as_one_run_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    time_on(GPU, [machine.work(1e-4, 1e-5, first_s=3.0)])
    assert machine.slept_s < 5e-3, "what the first run pays for is not in it"
    time_on(GPU, [machine.work(3e-3, 1e-5)])
    assert machine.slept_s < 1.1 * device_timing.LONG_PAUSE_S


def test_a_faster_clock_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, told_khz=2_600_000)
    time_on(GPU, [machine.work(1e-4, 1e-5)])
    assert machine.slept_s > 20 * 1e-4 * 2.6e9 / CLOCK
    assert device_timing._cycles_per_s(GPU) == 2.6e9


def test_work_takes_turns_over_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    used: list[int] = []

    def copy(number: int) -> Callable[[], None]:
        work = machine.work(1e-5, 2e-5)
        return lambda: (used.append(number), work())[1]

    time_on(GPU, [copy(number) for number in range(3)], 0.0)
    timed = used[2 * WARM_UP_RUNS :]
    assert timed == [number % 3 for number in range(device_timing.MIN_RUNS)]
