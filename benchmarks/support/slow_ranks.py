"""Emulated slow devices: ranks that sleep in proportion to their computation.

A rank of a device that is k times slower than a core computes as any other and then sleeps k - 1
times the processor time of its own thread in that pass or update. Waiting for messages and for
other ranks is no processor time, so it is not lengthened. Sleeping leaves the core to others, as
devices of their own would; repeating the work instead would take it from the fast ranks wherever
ranks outnumber cores. Only jobs of this module do so: no setting of the product leads here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardwright.costmodel.pricing.machine import Machine
from shardwright.spec.cluster.machine_profile import MachineProfile

if TYPE_CHECKING:
    from shardwright.executor.launch.rank_context import RankContext

SLOWED_HOST = ("kernel", "launch", "layer_pass", "unit", "step")
"""Host-side seconds that are a rank's own work; what it waits for others is none."""


@dataclass(frozen=True)
class EmulatedMachine(Machine):
    """Cores as device groups of several speeds, by slowed profiles.

    ``slowdowns`` are by device group: its name and how many times slower it is than a core.
    """

    slowdowns: tuple[tuple[str, float], ...] = ()

    @property
    def profile(self) -> MachineProfile | None:
        """The profile of the (first) device group."""
        measured = super().profile
        if measured is None:
            return None
        return slowed_profile(measured, dict(self.slowdowns)[self.cluster.groups[0].name])


def slowed_profile(profile: MachineProfile, slowdown: float) -> MachineProfile:
    """The profile of devices that compute ``slowdown`` times slower."""
    host_s = {
        name: seconds * slowdown if name in SLOWED_HOST else seconds
        for name, seconds in profile.host_s.items()
    }
    rows = tuple(replace(row, time_s=row.time_s * slowdown) for row in profile.kernels)
    return replace(profile, kernels=rows, host_s=host_s)


class Slowness:
    """Makes calls take ``slowdown`` times their processor time.

    Args:
        slowdown: at least 1.
        cpu_s: processor time of this thread.
        sleep: how to let time pass.
    """

    def __init__(
        self,
        slowdown: float,
        cpu_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not slowdown >= 1:
            raise ValueError(f"slowdown {slowdown}: at least 1, for nothing gets faster")
        self.slowdown = slowdown
        self.cpu_s = cpu_s
        self.sleep = sleep

    def of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, slower."""

        def slower(*arguments: Any, **named: Any) -> Any:
            start_s = self.cpu_s()
            result = call(*arguments, **named)
            self.sleep((self.slowdown - 1) * (self.cpu_s() - start_s))
            return result

        return slower


@contextmanager
def slowed(slowness: Slowness) -> Iterator[None]:
    """Inside, this process's passes and updates are slower."""
    from shardwright.executor.engine.optimizer_step import Updater
    from shardwright.executor.pipeline.runtime import PipelineRuntime

    methods: list[tuple[type, str]] = [
        (PipelineRuntime, "compute"),
        (Updater, "finish_gradients"),
        (Updater, "gradient_norm_and_loss"),
        (Updater, "update"),
    ]
    plain = [getattr(holder, name) for holder, name in methods]
    for (holder, name), call in zip(methods, plain, strict=True):
        setattr(holder, name, slowness.of(call))
    try:
        yield
    finally:
        for (holder, name), call in zip(methods, plain, strict=True):
            setattr(holder, name, call)


def step_seconds(context: RankContext, payload: dict[str, Any]) -> list[float]:
    """Job: seconds of each step after warm-up, on the slowest rank.

    Args:
        context: the rank.
        payload: as of the profiler's job of that name, and ``slowdowns`` by rank.
    """
    from shardwright.profiler.timing import step_timing

    wanted = {name: value for name, value in payload.items() if name != "slowdowns"}
    with slowed(Slowness(payload["slowdowns"][context.rank])):
        return step_timing.step_seconds(context, wanted)
