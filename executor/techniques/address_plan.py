"""The run of address_plan: requests of passes answered from a planned arena.

The first step makes what lasts, such as tables of angles, and is left to torch's own allocator;
from the second on, the n-th request of a pass is given the n-th planned address. A request that is
not as planned is torch's own, counted, and named in the run's result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...kernels.addresses.arena import CoreArena
from ...spec.errors import InputError, RunError
from ...spec.report.planned_addresses import RankAddresses, kept_addresses
from ...spec.schedules.passes import Pass
from ...spec.techniques.address_plan import NAME
from ...spec.units import format_bytes
from ..host.process_memory import available_bytes
from ..technique import TechniqueContext, TechniqueHooks, TechniqueRun

UNPLANNED = "plan execute makes them: run the plan with it once, or leave address_plan out"


class AddressHooks(TechniqueHooks):
    """Replays a rank's addresses from its second step on."""

    def __init__(self, addresses: RankAddresses, arena: CoreArena) -> None:
        self._addresses = addresses
        self._arena = arena
        self._steps = self._passes = self._resident = 0

    def begin_step(self) -> None:
        """Take the arena before the second step."""
        self._passes = 0
        self._steps += 1
        if self._steps == 2:
            self._arena.plan(self._addresses)

    def begin_pass(self, item: Pass) -> None:
        """Begin a pass of the plan's order."""
        if self._steps > 1:
            self._arena.begin(self._passes)
            self._passes += 1

    def end_pass(self, item: Pass) -> None:
        """End the pass."""
        if self._steps > 1:
            self._arena.end()

    @contextmanager
    def around_layer(self, layer: int, item: Pass) -> Iterator[None]:
        """A layer's forward is a section."""
        self._mark()
        yield
        self._mark()

    def after_backward(self, layer: int, item: Pass) -> None:
        """A layer's backward is a section."""
        self._mark()

    def _mark(self) -> None:
        if self._steps > 1:
            self._arena.mark()

    def end_step(self) -> None:
        """Note the pages that the arena has."""
        if self._steps > 1:
            self._resident = max(self._resident, self._arena.resident_bytes())

    def report(self) -> dict[str, Any]:
        """Requests by how they were answered, and the arena planned and resident."""
        counts = self._arena.counts()
        return {
            "steps": max(0, self._steps - 1),
            "arena_bytes": self._addresses.arena_bytes,
            "resident_bytes": self._resident,
            "unplanned": counts.unplanned,
            **counts._asdict(),
        }

    def close(self) -> None:
        """Give the arena back once its tensors are gone."""
        self._arena.close()


def start(context: TechniqueContext) -> TechniqueHooks:
    """This rank's replay.

    Raises:
        InputError: a device that is no core, or no addresses.
        RunError: no compiler, or no room for the arena.
    """
    require_cores(context.device)
    kept = kept_addresses(context.plan.hash)
    if kept is None:
        raise InputError(NAME, "no addresses of this plan on this machine", UNPLANNED)
    found = kept.rank(context.process_groups.rank)
    require_room(found.arena_bytes, available_bytes())
    return AddressHooks(found, CoreArena())


def require_cores(device: torch.device) -> None:
    """Refuse devices whose allocator is not replayed yet.

    Raises:
        InputError: a device that is no core.
    """
    if device.type != "cpu":
        raise InputError(NAME, device.type, "cores: other devices are not replayed yet", "none")


def require_room(arena_bytes: int, free: int | None) -> None:
    """Refuse an arena beyond free memory, before the first step.

    Raises:
        RunError: it does not fit.
    """
    if free is not None and arena_bytes > free:
        raise RunError(
            f"address_plan: the planned arena has {format_bytes(arena_bytes)}, "
            f"but {format_bytes(free)} are free"
        )


TECHNIQUE = TechniqueRun(name=NAME, start=start)
