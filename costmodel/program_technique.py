"""ProgramPrice: what a technique's value for a whole program adds to its plan's work, or changes.

``TechniquePrice.program`` holds it. Work and bytes that follow a layer's states belong to ``unit``,
which searches bound layer by layer; ``step`` is for what a rank does once, whatever its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spec.cluster.stack_spec import StackSpec
from ..spec.errors import InputError
from ..spec.strategy import LayerStrategy
from ..spec.workload.workload import Workload
from .symbolic.lane_work import Lane
from .symbolic.tape import WorkItem
from .symbolic.tier_bytes import StateBytes

if TYPE_CHECKING:
    from .sharding.fsdp_unit import FsdpUnit
    from .sharding.param_groups import UnitShape


class StepShape(NamedTuple):
    """A rank's part of a step: units of its layers, ranks of its stage, software, workload."""

    units: tuple[FsdpUnit, ...]
    stage_ranks: int
    stack: StackSpec
    workload: Workload


class StepLaneWork(NamedTuple):
    """Items in order on a lane beside whole steps, until when they are issued anew."""

    lane: Lane
    items: tuple[WorkItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAddition:
    """Additions of a technique to a rank's step.

    ``update``: work in line with the optimizer's update; ``beside``: work on lanes beside the whole
    step. Both are done once in ``every`` steps, and a step's time is the mean of so many.
    ``resident_bytes`` of device memory, and ``resident_tier_bytes`` on other tiers, are held from
    step to step.
    """

    update: tuple[WorkItem, ...] = ()
    beside: tuple[StepLaneWork, ...] = ()
    every: int = 1
    resident_bytes: int = 0
    resident_tier_bytes: tuple[StateBytes, ...] = ()


StepAdditions = tuple[tuple[str, StepAddition], ...]
"""Additions by technique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPrice:
    """The price of a program's values; a None hook changes nothing.

    Attributes:
        stack: the stack of all layers, where the value replaces its fusions, its overlaps or what
            its allocator keeps.
        unit: the states of every layer, each after the techniques of its own; its shape has all
            ranks of the stage, also where some are left out of reductions.
        step: additions to a rank's step.
        window: the most bytes of waiting gradients (``FsdpUnit.waiting``) that a layer's backward
            sums beside its exchanges of experts' rows, of a layer's number and strategy; None: it
            has no window.
    """

    stack: Callable[[StackSpec, Any], StackSpec] | None = None
    unit: Callable[[UnitShape, FsdpUnit, Any], FsdpUnit] | None = None
    step: Callable[[StepShape, Any], StepAddition] | None = None
    window: Callable[[Any, int, LayerStrategy], int | None] | None = None


class PricedValue(NamedTuple):
    """A program's value with its price."""

    name: str
    price: ProgramPrice
    value: Any


PricedValues = tuple[PricedValue, ...]


def priced_values(values: Mapping[str, Any], prices: Mapping[str, ProgramPrice]) -> PricedValues:
    """Prices of a program's values, in their order.

    Raises:
        InputError: a technique that this version does not price for a program.
    """
    for name in values:
        if name not in prices:
            allowed = ", ".join(prices) or "none"
            raise InputError(f"techniques.{name}", "no price", f"techniques with one: {allowed}")
    return tuple(PricedValue(n, price, values[n]) for n, price in prices.items() if n in values)


def program_stack(stack: StackSpec, priced: PricedValues) -> StackSpec:
    """The stack of all layers under a program's values."""
    for _, price, value in priced:
        if price.stack is not None:
            stack = price.stack(stack, value)
    return stack


def program_unit(shape: UnitShape, unit: FsdpUnit, priced: PricedValues) -> FsdpUnit:
    """The states of a layer under a program's values."""
    for _, price, value in priced:
        if price.unit is not None:
            unit = price.unit(shape, unit, value)
    return unit


def program_window(index: int, strategy: LayerStrategy, priced: PricedValues) -> int | None:
    """Bytes of a layer's window under a program's values; None: it has none."""
    for _, price, value in priced:
        if price.window is not None:
            return price.window(value, index, strategy)
    return None


def step_additions(shape: StepShape, priced: PricedValues) -> StepAdditions:
    """Additions to a rank's step under a program's values."""
    return tuple(
        (name, price.step(shape, value)) for name, price, value in priced if price.step is not None
    )
