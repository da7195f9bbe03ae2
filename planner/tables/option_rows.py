"""Rows of tables of options: split by split and unit by unit, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...costmodel.lowering.plan_lowering import technique_key
from ...costmodel.sharding.fsdp_unit import FsdpUnit
from ...spec.strategy import LayerStrategy

Floats = NDArray[np.float64]
RowT = TypeVar("RowT", "list[float]", Floats)


class KeyIndex:
    """Numbers of what strategies have in common: equal parts have one.

    Tables ask for the parts of the same strategies again and again, so each is found once an
    object; what is known of an object keeps it, so that its id stays its own.

    Args:
        part: of a strategy.
    """

    def __init__(self, part: Callable[[LayerStrategy], Hashable]) -> None:
        self._part = part
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[int, LayerStrategy]] = {}

    def __call__(self, strategy: LayerStrategy) -> int:
        """The number of a strategy's part."""
        known = self._known.get(id(strategy))
        if known is None:
            number = self._numbers.setdefault(self._part(strategy), len(self._numbers))
            known = self._known[id(strategy)] = (number, strategy)
        return known[0]


def option_rows(
    strategies: Sequence[LayerStrategy],
    part: Callable[[LayerStrategy], Hashable],
    row: Callable[[LayerStrategy], RowT],
) -> Floats:
    """A row for every strategy, made once for each distinct ``part`` of them."""
    numbers: dict[Hashable, int] = {}
    found: list[RowT] = []
    places = []
    for strategy in strategies:
        key = part(strategy)
        if key not in numbers:
            numbers[key] = len(found)
            found.append(row(strategy))
        places.append(numbers[key])
    return np.array(found, dtype=np.float64)[places]


def unit_key(strategy: LayerStrategy) -> Hashable:
    """What the movement of the layer's parameters depends on."""
    s = strategy
    return (s.weight_split, s.megatron_sp, s.ep, s.etp, s.shard, technique_key(s))


def resident_bytes(unit: FsdpUnit, contiguous: bool) -> float:
    """Bytes of a unit that live from the first forward pass on.

    Args:
        unit: the unit.
        contiguous: whether gradients have buffers of their own all along.
    """
    whole = 0 if unit.gathers_each_use else unit.whole_bytes
    gradients = unit.accumulated_bytes if contiguous else 0
    own = unit.parameter_bytes + unit.optimizer_bytes + unit.added_bytes
    return float(own + whole + gradients)


def waiting_bytes(unit: FsdpUnit, microbatches: int) -> float:
    """Gradients at the fullest moment: whole ones where they wait, shards where they do not."""
    if not unit.wrapped:
        return float(unit.gradient_bytes)
    if unit.reduces_each_micro_batch:
        return float(unit.shard_gradient_bytes)
    return float(unit.accumulated_bytes if microbatches > 1 else unit.shard_gradient_bytes)
