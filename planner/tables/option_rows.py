"""Rows of option tables, by split and FSDP unit, each made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ...costmodel.lowering.plan_lowering import TechniqueKey
from ...costmodel.sharding.fsdp_unit import FsdpUnit
from ...costmodel.symbolic.tier_bytes import TIERS, StateBytes, TierBytes, total_bytes
from ...spec.strategy import LayerStrategy
from ..space.joined_strategies import parts_of
from .arrays import Ints, Records


class KeyIndex:
    """Numbers of strategy keys, equal for equal keys.

    Each key is computed once an object, since tables ask for the same strategies again and again.
    The caches hold the objects, so that their ids stay their own.
    """

    def __init__(self, key_of: Callable[[LayerStrategy], Hashable]) -> None:
        self._key_of = key_of
        self._numbers: dict[Hashable, int] = {}
        self._cache: dict[int, tuple[int, LayerStrategy]] = {}
        self._arrays = StrategyArrays(self)

    def __call__(self, strategy: LayerStrategy) -> int:
        """The number of a strategy's key."""
        entry = self._cache.get(id(strategy))
        if entry is None:
            number = self._numbers.setdefault(self._key_of(strategy), len(self._numbers))
            entry = self._cache[id(strategy)] = (number, strategy)
        return entry[0]

    def numbers(self, strategies: tuple[LayerStrategy, ...]) -> Ints:
        """Numbers of strategies, made once a tuple."""
        return self._arrays(strategies)


class StrategyArrays:
    """A number of each of some strategies, made once a tuple, or once a part."""

    def __init__(self, number_of: Callable[[LayerStrategy], int]) -> None:
        self._number_of = number_of
        self._cache: dict[int, tuple[Ints, tuple[LayerStrategy, ...]]] = {}

    def __call__(self, strategies: tuple[LayerStrategy, ...]) -> Ints:
        """The numbers of some strategies."""
        entry = self._cache.get(id(strategies))
        if entry is None:
            parts = parts_of(strategies)
            if parts:
                array = np.concatenate([self(part) for part in parts])
            else:
                array = np.array([self._number_of(s) for s in strategies], dtype=np.int64)
            entry = self._cache[id(strategies)] = (array, strategies)
        return entry[0]


def option_rows(
    strategies: Sequence[LayerStrategy],
    numbers: Ints,
    row_of: Callable[[LayerStrategy], np.void | tuple[Any, ...]],
    dtype: np.dtype[np.void],
) -> Records:
    """Rows of strategies as an array of ``dtype``; equal numbers have one row.

    Args:
        strategies: of the rows.
        numbers: of their keys.
        row_of: the row of a strategy.
        dtype: of a row.
    """
    _, first, indices = np.unique(numbers, return_index=True, return_inverse=True)
    rows = np.array([row_of(strategies[row]) for row in first.tolist()], dtype=dtype)
    return rows[indices]


def unit_key(strategy: LayerStrategy, techniques: TechniqueKey) -> Hashable:
    """Key of a layer's FSDP unit, under its techniques of states."""
    s = strategy
    return (s.weight_split, s.megatron_sp, s.ep, s.etp, s.shard, techniques)


def resident_bytes(unit: FsdpUnit, contiguous: bool) -> float:
    """Bytes of a unit, live from the first forward pass on."""
    whole = 0 if unit.gathers_each_use else unit.whole_bytes
    gradients = unit.accumulated_bytes if contiguous else 0
    states = unit.parameter_bytes + unit.optimizer_bytes + unit.added_bytes
    return float(states + whole + gradients)


def bytes_by_tier(sizes: TierBytes | tuple[StateBytes, ...]) -> tuple[float, ...]:
    """Sums of bytes on each of ``TIERS``."""
    return tuple(float(total_bytes(sizes, tier)) for tier in TIERS)


def gathered_bytes(unit: FsdpUnit) -> tuple[float, float]:
    """Parameters gathered for a backward, and the bytes at the fullest moment of the gathers."""
    if not unit.gathers_each_use:
        return 0.0, 0.0
    whole_bytes = largest = 0
    for gather in unit.gathers:
        moved_bytes = gather.flat_bytes + max(gather.cast_bytes, gather.whole_bytes)
        largest = max(largest, whole_bytes + moved_bytes)
        whole_bytes += gather.whole_bytes
    return float(whole_bytes), float(largest)


def waiting_bytes(unit: FsdpUnit, microbatches: int) -> float:
    """Gradients at the memory peak: whole while waiting, else shards."""
    if not unit.wrapped:
        return float(unit.gradient_bytes)
    if unit.reduces_each_micro_batch:
        return float(unit.shard_gradient_bytes)
    return float(unit.accumulated_bytes if microbatches > 1 else unit.shard_gradient_bytes)
