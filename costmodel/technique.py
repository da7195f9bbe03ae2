"""TechniquePrice: work that a technique adds to a plan's, or changes.

A module of ``techniques`` ends in one. Added work counts under the technique's name in the
breakdown, and is lowered like all other work, so everything prices it alike and no search knows a
technique by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..spec.cluster.stack_spec import StackSpec
from ..spec.errors import InputError
from ..spec.strategy import LayerStrategy
from ..spec.technique import TechniqueValue
from .program_technique import ProgramPrice
from .symbolic.added_update import AddedUpdate
from .symbolic.lane_work import NO_LANES, Begins, Lane, LaneWork, LaneWorks
from .symbolic.lowered_pass import NO_PASS, HostWork, LoweredPass, chain_passes
from .symbolic.tape import TapeEntry, WorkItem
from .symbolic.tier_bytes import StateBytes, TierBytes

if TYPE_CHECKING:
    from .layers.layer import LayerSegment
    from .lowering.layer_lowering import LoweredLayer
    from .sharding.fsdp_unit import FsdpUnit
    from .sharding.param_groups import UnitShape
    from .symbolic.layer_shape import LayerShape
    from .technique_spans import LaneSpans, PricedPass


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWork:
    """Work that a technique adds to a pass, serially.

    ``items``: kernels and collectives in order; ``scratch_bytes`` live while they run; ``host_s``:
    host time beside their launches.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedLaneWork:
    """Work that a technique adds beside a layer's pass; see :class:`LaneWork`.

    On cores, which copy and compute alike, all of it is in line but for the wire's.
    """

    lane: Lane
    items: tuple[WorkItem, ...]
    begins: Begins
    lag: int = 0

    def named(self, name: str) -> LaneWork:
        """The work under a technique's name."""
        return LaneWork(name, self.lane, self.items, self.begins, self.lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAddition:
    """Additions of a technique to every micro-batch through a layer.

    ``kept_bytes`` of device memory are held from a forward to its backward; below 0: so many of the
    layer's own are released in between, and are back before the backward; ``releases_input``: its
    saved input among them. ``kept_tier_bytes`` are
    held in between on other tiers. ``beside_forward`` and ``beside_backward`` run on lanes, whose
    buffers of ``beside_bytes`` live beside the layer's passes where lanes run beside them.
    """

    forward: AddedWork = NO_WORK
    backward: AddedWork = NO_WORK
    beside_forward: tuple[AddedLaneWork, ...] = ()
    beside_backward: tuple[AddedLaneWork, ...] = ()
    kept_bytes: int = 0
    kept_tier_bytes: TierBytes = ()
    releases_input: bool = False
    beside_bytes: int = 0


LowerLayer = Callable[["LayerSegment", "LayerShape"], "LoweredLayer"]
"""Lowers a layer's micro-batch under its shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniquePrice:
    """The price of a technique's values; a None hook changes nothing.

    Attributes:
        value: the technique.
        at_least: what every value still takes of a layer that is otherwise the same: its whole
            ``work``, its matrix ``products``, or ``nothing`` for sure. Bounds made of plain layers
            rest on it.
        stack: the stack for a layer, where the technique replaces some of its fusions.
        host_work: the host's part of a pass (entries, kernels among them that add gradients to
            others, True if forward); None: all are eager launches.
        layer: additions to every micro-batch.
        lowered_layer: the same, of a technique whose additions follow from layers as lowered.
        unit: the layer's states: with other traffic, with work once a step (:func:`with_addition`),
            or with parameters fetched before each gather (:func:`with_fetched_parameters`).
        may_hide: True for decisions whose tensor-parallel collectives are priced as showing and
            may hide in full, by how much nobody measured: the interval of a step reaches there.
        spans: what a timeline shows of a layer's pass on lanes of the technique's own, each in
            order and inside the layer's seconds; no price depends on it.
        program: of a technique whose values stand in programs; the hooks above are then not called.
    """

    value: TechniqueValue
    at_least: Literal["work", "products", "nothing"] = "work"
    stack: Callable[[StackSpec, LayerStrategy], StackSpec] | None = None
    host_work: (
        Callable[[LayerStrategy, tuple[TapeEntry, ...], int, bool], HostWork | None] | None
    ) = None
    layer: Callable[[LayerSegment, LayerShape], LayerAddition] | None = None
    lowered_layer: Callable[[LayerSegment, LayerShape, LowerLayer], LayerAddition] | None = None
    unit: Callable[[UnitShape, FsdpUnit], FsdpUnit] | None = None
    may_hide: Callable[[LayerStrategy], bool] | None = None
    spans: Callable[[PricedPass], LaneSpans] | None = None
    program: ProgramPrice | None = None

    @property
    def name(self) -> str:
        """The technique's name."""
        return self.value.name

    @property
    def touches_passes(self) -> bool:
        """True if a layer's own work depends on the value."""
        hooks = self.stack, self.host_work, self.layer, self.lowered_layer
        return any(hook is not None for hook in hooks)

    @property
    def touches_states(self) -> bool:
        """True if a layer's FSDP unit depends on the value."""
        return self.unit is not None

    def addition(
        self, layer: LayerSegment, shape: LayerShape, lower: LowerLayer
    ) -> LayerAddition | None:
        """Its additions to every micro-batch through a layer, or None."""
        if self.layer is not None:
            return self.layer(layer, shape)
        if self.lowered_layer is not None:
            return self.lowered_layer(layer, shape, lower)
        return None


TechniquePrices = tuple[TechniquePrice, ...]


def technique_prices(
    strategy: LayerStrategy, prices: Mapping[str, TechniquePrice]
) -> TechniquePrices:
    """Prices of the techniques of a layer's strategy, in their order.

    Raises:
        InputError: a technique that this version does not price.
    """
    for name in strategy.techniques:
        if name not in prices:
            allowed = ", ".join(prices) or "none"
            raise InputError(f"techniques.{name}", "no price", f"techniques with one: {allowed}")
    return tuple(price for price in prices.values() if price.name in strategy.techniques)


def stack_with(stack: StackSpec, strategy: LayerStrategy, prices: TechniquePrices) -> StackSpec:
    """The stack for a layer under its techniques."""
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
    """A pass's host work under the one technique that changes it.

    None if none does.

    Raises:
        InputError: several techniques of a layer change it.
    """
    host_works = {
        price.name: host
        for price in prices
        if price.host_work is not None
        and (host := price.host_work(strategy, entries, additions, forward)) is not None
    }
    if len(host_works) > 1:
        one, *others = sorted(host_works)
        allowed = "one technique of a layer that says what the host does in its passes"
        raise InputError("techniques", f"{one} beside {', '.join(others)}", allowed, one)
    return next(iter(host_works.values()), None)


def within_parts(prices: TechniquePrices) -> TechniquePrices:
    """Prices for parts of a layer, without whole-layer additions."""
    return tuple(
        replace(price, layer=None, lowered_layer=None, unit=None)
        for price in prices
        if price.stack is not None or price.host_work is not None
    )


@dataclass(frozen=True, slots=True)
class AddedPasses:
    """Techniques' additions, after a layer's forward and before its backward."""

    forward: LoweredPass
    backward: LoweredPass
    kept_bytes: int
    kept_tier_bytes: TierBytes = ()
    lanes: tuple[LaneWorks, LaneWorks] = NO_LANES
    """Beside the forward, and beside the backward."""
    beside_bytes: int = 0
    releases_input: bool = False


def added_passes(layer: LayerSegment, shape: LayerShape, lower: LowerLayer) -> AddedPasses | None:
    """Additions of techniques to every micro-batch through a layer, or None."""
    forward, backward, kept_bytes, beside_bytes = NO_PASS, NO_PASS, 0, 0
    releases_input = False
    tier_bytes: TierBytes = ()
    forward_lanes: LaneWorks = ()
    backward_lanes: LaneWorks = ()
    for price in shape.prices:
        if (addition := price.addition(layer, shape, lower)) is not None:
            forward = chain_passes(forward, addition.forward.lowered(price.name))
            backward = chain_passes(backward, addition.backward.lowered(price.name))
            kept_bytes += addition.kept_bytes
            beside_bytes += addition.beside_bytes
            releases_input |= addition.releases_input
            tier_bytes += addition.kept_tier_bytes
            forward_lanes += tuple(work.named(price.name) for work in addition.beside_forward)
            backward_lanes += tuple(work.named(price.name) for work in addition.beside_backward)
    lanes = forward_lanes, backward_lanes
    if (forward, backward, kept_bytes, tier_bytes, *lanes) == (NO_PASS, NO_PASS, 0, (), (), ()):
        return None
    if not shape.training.backward:
        return AddedPasses(forward, NO_PASS, 0, (), (forward_lanes, ()), beside_bytes)
    forward = replace(forward, change_bytes=kept_bytes)
    return AddedPasses(
        forward, backward, kept_bytes, tier_bytes, lanes, beside_bytes, releases_input
    )


def added_backward(backward: LoweredPass, added: AddedPasses) -> LoweredPass:
    """A layer's backward with additions; restored bytes live from its start."""
    whole = chain_passes(added.backward, backward)
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
    resident_tier_bytes: tuple[StateBytes, ...] = (),
    beside_gradient: tuple[AddedLaneWork, ...] = (),
    beside_update: tuple[AddedLaneWork, ...] = (),
    every: int = 1,
) -> FsdpUnit:
    """A unit with a technique's work and state.

    Args:
        unit: states of a layer.
        name: the technique.
        gradient: work once a step, on complete gradients, in the last micro-batch's backward.
        update: work with the optimizer's update.
        resident_bytes: of device memory, held from step to step.
        resident_tier_bytes: the same on other tiers.
        beside_gradient: work once a step, beside the last micro-batch's backward.
        beside_update: work beside the device's own update, from when the norm is known: each item
            follows the one before it, and on its lane those of earlier units.
        every: steps of which one has the work of ``update``.
    """
    return replace(
        unit,
        added=chain_passes(unit.added, gradient.lowered(name)),
        added_update=(*unit.added_update, AddedUpdate(name, update, every))
        if update
        else unit.added_update,
        added_bytes=unit.added_bytes + resident_bytes,
        added_tier_bytes=(*unit.added_tier_bytes, *resident_tier_bytes),
        gradient_lanes=(*unit.gradient_lanes, *(work.named(name) for work in beside_gradient)),
        update_lanes=(*unit.update_lanes, *(work.named(name) for work in beside_update)),
    )


def with_fetched_parameters(
    unit: FsdpUnit, name: str, copy: WorkItem, shard_bytes: int
) -> FsdpUnit:
    """A unit with parameter shards on the device only during gathers.

    Where the stack prefetches gathers, a copy runs on its lane beside the layer before.

    Args:
        unit: states of a layer, with parameters gathered for each use.
        name: the technique, under which the copies count.
        copy: from another tier, before each gather of dense parameters.
        shard_bytes: of those parameters on a rank.
    """
    dense, *others = unit.gathers
    filled = dense._replace(cast_bytes=dense.cast_bytes + shard_bytes)
    unit = replace(
        unit,
        parameter_bytes=unit.parameter_bytes - shard_bytes,
        gathers=(filled, *others),
    )
    if unit.overlaps.dp_parameter:
        beside = LaneWork(name, "to_device", (copy,), "gather")
        lanes = (*unit.gather_lanes, beside)
        return replace(unit, gather_lanes=lanes, fetched_bytes=unit.fetched_bytes + shard_bytes)
    return replace(
        unit,
        gather=unit.gather._replace(
            forward=(copy, *unit.gather.forward), backward=(copy, *unit.gather.backward)
        ),
        fetched_by=name,
    )


def with_offloaded_gradients(unit: FsdpUnit, name: str, down: WorkItem, up: WorkItem) -> FsdpUnit:
    """A unit with reduced gradients on another tier, where micro-batches add up.

    Args:
        unit: states of a layer.
        name: the technique, under which the copies count.
        down: copy of a reduced gradient from the device.
        up: copy of the sum of earlier micro-batches to the device, which adds to it.
    """
    reduce = unit.reduce
    return replace(
        unit,
        shard_gradient_bytes=0,
        reduce=reduce._replace(
            fresh=(*reduce.fresh, down),
            accumulated=(*reduce.accumulated, down),
            accumulate_shard=(up, *reduce.accumulate_shard),
        ),
        fetched_by=name,
    )
