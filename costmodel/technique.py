"""What a technique says of its price: work that it adds to a plan's, or changes in it.

A module of :mod:`techniques` ends in one :class:`TechniquePrice`. Whatever it adds counts under
the technique's name in the breakdown. It is lowered like all other work, so bounds, estimates and
simulations price it in one way, and nothing that searches knows any technique by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..spec.cluster.stack_spec import StackSpec
from ..spec.errors import InputError
from ..spec.strategy import LayerStrategy
from ..spec.technique import TechniqueValue
from .symbolic.lowered_pass import NO_PASS, HostWork, LoweredPass, chain_passes
from .symbolic.tape import TapeEntry, WorkItem

if TYPE_CHECKING:
    from .layers.layer import LayerSegment
    from .sharding.fsdp_unit import FsdpUnit
    from .sharding.param_groups import UnitShape
    from .symbolic.layer_shape import LayerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWork:
    """Work that a technique adds to a pass, in line, with what it needs while it runs.

    ``items`` are kernels and collectives in order, ``scratch_bytes`` live while they run, and
    ``host_s`` is host time beside their launches.
    """

    items: tuple[WorkItem, ...] = ()
    scratch_bytes: int = 0
    host_s: float = 0.0

    def lowered(self, name: str) -> LoweredPass:
        """The work as a pass of its own, under a technique's name."""
        entries = tuple(TapeEntry(item, False, technique=name) for item in self.items)
        kernels = len(LoweredPass(entries, 0, 0).kernels())
        host = HostWork(kernels, once_s=self.host_s) if self.host_s else None
        return LoweredPass(entries, self.scratch_bytes, 0, host=host)


NO_WORK = AddedWork()
Tier = Literal["host", "nvme"]
TIERS: tuple[Tier, ...] = ("host", "nvme")
TierBytes = tuple[tuple[Tier, int], ...]
"""Bytes by memory tier beyond the device's own."""


def total_bytes(sizes: TierBytes, tier: Tier) -> int:
    """What of ``sizes`` is on a tier."""
    return sum(size for name, size in sizes if name == tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAddition:
    """What a technique adds to every micro-batch through a layer.

    ``kept_bytes`` of device memory are held from a forward to its backward; below 0: so many of
    the layer's own are not held in between, and are back before the backward begins.
    ``kept_tier_bytes`` is held in between on other tiers.
    """

    forward: AddedWork = NO_WORK
    backward: AddedWork = NO_WORK
    kept_bytes: int = 0
    kept_tier_bytes: TierBytes = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniquePrice:
    """What the values of a technique cost. A hook that is None changes nothing.

    ``stack``: the stack as a layer meets it, where the technique takes the place of some of its
    fusions. ``host_work``: the host's part of a pass (entries, kernels among them that add
    gradients to others, whether forward); None: all are eager launches. ``layer``: what every
    micro-batch does more. ``unit``: the layer's states, with other traffic or, through
    :func:`with_addition`, more work once a step.

    ``at_least`` is what every value still takes of a layer that is otherwise the same: its whole
    ``work``, its matrix ``products``, or ``nothing`` that is sure. Bounds made of plain layers
    rest on it.
    """

    value: TechniqueValue
    at_least: Literal["work", "products", "nothing"] = "work"
    stack: Callable[[StackSpec, LayerStrategy], StackSpec] | None = None
    host_work: (
        Callable[[LayerStrategy, tuple[TapeEntry, ...], int, bool], HostWork | None] | None
    ) = None
    layer: Callable[[LayerSegment, LayerShape], LayerAddition] | None = None
    unit: Callable[[UnitShape, FsdpUnit], FsdpUnit] | None = None

    @property
    def name(self) -> str:
        """The technique's name."""
        return self.value.name


TechniquePrices = tuple[TechniquePrice, ...]


def technique_prices(
    strategy: LayerStrategy, known: Mapping[str, TechniquePrice]
) -> TechniquePrices:
    """The prices of the techniques of a layer's strategy, in their order.

    Raises:
        InputError: a technique that this version does not price.
    """
    for name in strategy.techniques:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(f"techniques.{name}", "no price", f"techniques with one: {allowed}")
    return tuple(price for price in known.values() if price.name in strategy.techniques)


def stack_with(stack: StackSpec, strategy: LayerStrategy, prices: TechniquePrices) -> StackSpec:
    """The stack as a layer meets it under its techniques."""
    for price in prices:
        if price.stack is not None:
            stack = price.stack(stack, strategy)
    return stack


def host_work_of(
    strategy: LayerStrategy,
    entries: tuple[TapeEntry, ...],
    additions: int,
    forward: bool,
    prices: TechniquePrices,
) -> HostWork | None:
    """The host's part of a pass as the technique says that has any; else None.

    Raises:
        InputError: several techniques of a layer say it.
    """
    found = {
        price.name: host
        for price in prices
        if price.host_work is not None
        and (host := price.host_work(strategy, entries, additions, forward)) is not None
    }
    if len(found) > 1:
        one, *others = sorted(found)
        allowed = "one technique of a layer that says what the host does in its passes"
        raise InputError("techniques", f"{one} beside {', '.join(others)}", allowed, one)
    return next(iter(found.values()), None)


def within_parts(prices: TechniquePrices) -> TechniquePrices:
    """What techniques change inside the parts of a layer, without what they add to the whole."""
    return tuple(
        replace(price, layer=None, unit=None)
        for price in prices
        if price.stack is not None or price.host_work is not None
    )


@dataclass(frozen=True, slots=True)
class AddedPasses:
    """What all techniques of a layer add to its passes: after the forward, before the backward."""

    forward: LoweredPass
    backward: LoweredPass
    kept_bytes: int
    kept_tier_bytes: TierBytes = ()


def added_passes(layer: LayerSegment, shape: LayerShape) -> AddedPasses | None:
    """What the techniques of a layer add to every micro-batch; None for nothing."""
    forward, backward, kept_bytes = NO_PASS, NO_PASS, 0
    elsewhere: TierBytes = ()
    for price in shape.prices:
        if price.layer is not None:
            found = price.layer(layer, shape)
            forward = chain_passes(forward, found.forward.lowered(price.name))
            backward = chain_passes(backward, found.backward.lowered(price.name))
            kept_bytes += found.kept_bytes
            elsewhere += found.kept_tier_bytes
    if (forward, backward, kept_bytes, elsewhere) == (NO_PASS, NO_PASS, 0, ()):
        return None
    if not shape.training.backward:
        return AddedPasses(forward, NO_PASS, 0)
    forward = replace(forward, change_bytes=kept_bytes)
    return AddedPasses(forward, backward, kept_bytes, elsewhere)


def added_backward(own: LoweredPass, added: AddedPasses) -> LoweredPass:
    """A layer's backward with what techniques add: bytes that are back are there from its start."""
    whole = chain_passes(added.backward, own)
    return replace(
        whole,
        peak_bytes=whole.peak_bytes + max(0, -added.kept_bytes),
        change_bytes=whole.change_bytes - added.kept_bytes,
    )


def unit_with(shape: UnitShape, unit: FsdpUnit, prices: TechniquePrices) -> FsdpUnit:
    """The states of a layer under its techniques."""
    for price in prices:
        if price.unit is not None:
            unit = price.unit(shape, unit)
    return unit


def with_addition(
    unit: FsdpUnit,
    name: str,
    gradient: AddedWork = NO_WORK,
    update: tuple[WorkItem, ...] = (),
    resident_bytes: int = 0,
    resident_tier_bytes: TierBytes = (),
) -> FsdpUnit:
    """A unit with a technique's own work and state.

    Args:
        unit: the states of a layer.
        name: the technique.
        gradient: done once a step, when the layer's gradients are complete, in the last
            micro-batch's backward.
        update: done with the optimizer's update.
        resident_bytes: of device memory, held from step to step.
        resident_tier_bytes: the same on other tiers.
    """
    return replace(
        unit,
        added=chain_passes(unit.added, gradient.lowered(name)),
        added_update=(*unit.added_update, (name, update)) if update else unit.added_update,
        added_bytes=unit.added_bytes + resident_bytes,
        added_tier_bytes=(*unit.added_tier_bytes, *resident_tier_bytes),
    )
