"""Options whose technique's value lies on the line between two others, which bounds do without.

Bounds weigh the figures of options, none negative, and add them up. Where all figures of an option
lie on or above the line between those of the same layer with the technique off and with its
farthest value, one of the two is the least under every weighting. What bounds do not weigh, such as
traffic that may hide, must be equal; what only a maximum is taken of, no less than at both ends and
no more than at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...spec.strategy import LayerStrategy
from ..space.joined_strategies import JoinedStrategies
from .arrays import Bools, Floats, Ints, Records
from .option_rows import KeyIndex, StrategyArrays

FEW_ROWS = 64
"""Tables of fewer options are left whole."""
ROUNDING = 1e-13
RIGID = ("gathered_bytes", "gathering_bytes", "gather_s", "reduce_s", "fetch_s")
RIGID_FLAGS = ("starts_anew", "hides_gather", "hides_reduction")
WEIGHED = ("resident_bytes", "waiting_one_bytes", "waiting_many_bytes", "copy_s")
PASSES = ("forward", "backward", "accumulating_backward")


class _Figures(NamedTuple):
    """Of options, shape (options, figures): weighed, maximized, and rigid ones."""

    weighed: Floats
    maximized: Floats
    rigid: Floats


class ValueChords:
    """Finds options between the values of each technique."""

    def __init__(self) -> None:
        self._groups: dict[str, KeyIndex] = {}
        self._holds: dict[str, StrategyArrays] = {}
        self._names: dict[int, tuple[tuple[str, ...], tuple[LayerStrategy, ...]]] = {}

    def ends(
        self,
        strategies: tuple[LayerStrategy, ...],
        split: Records,
        weight_passes: Records,
        unit: Records,
    ) -> Bools:
        """True for the options that are on no line between others.

        Args:
            strategies: the options.
            split: ``SPLIT_COST`` of each.
            weight_passes: ``WEIGHT_PASS_COST`` of each.
            unit: ``UNIT_COST`` of each.
        """
        kept = np.ones(len(strategies), dtype=bool)
        names = self._techniques(strategies) if len(strategies) >= FEW_ROWS else ()
        if names:
            figures = _figures(split, weight_passes, unit)
        for name in names:
            is_off = self._is_off(name, strategies)
            between = _between(self._group(name).numbers(strategies), is_off, figures)
            kept &= ~between
        return kept

    def _techniques(self, strategies: tuple[LayerStrategy, ...]) -> tuple[str, ...]:
        entry = self._names.get(id(strategies))
        if entry is None:
            parts = strategies.parts if isinstance(strategies, JoinedStrategies) else ()
            found = [self._techniques(part) for part in parts]
            found = found or [tuple(strategy.techniques) for strategy in strategies]
            names = sorted({name for names in found for name in names})
            entry = self._names[id(strategies)] = (tuple(names), strategies)
        return entry[0]

    def _is_off(self, name: str, strategies: tuple[LayerStrategy, ...]) -> Bools:
        if name not in self._holds:
            self._holds[name] = StrategyArrays(lambda s: int(name in s.techniques))
        is_off: Bools = self._holds[name](strategies) == 0
        return is_off

    def _group(self, name: str) -> KeyIndex:
        """Numbers of options equal but for a technique."""
        if name not in self._groups:
            self._groups[name] = KeyIndex(lambda s: _without(s, name))
        return self._groups[name]


def _without(strategy: LayerStrategy, name: str) -> tuple[object, ...]:
    s = strategy
    others = frozenset(item for item in s.techniques.items() if item[0] != name)
    return (s.tp, s.sequence_parallel, s.cp, s.ep, s.etp, s.shard, s.recompute, others)


def _figures(split: Records, weight_passes: Records, unit: Records) -> _Figures:
    rows = len(split)
    passes = [split[name] for name in PASSES]
    overlappable = [cost["overlappable_s"] for cost in passes]
    serial = [cost["time_s"] - cost["overlappable_s"] for cost in passes]
    weighed = [*serial, *overlappable, split["kept_bytes"], split["kept_tier_bytes"]]
    weighed += [unit[name] for name in (*WEIGHED, "resident_tier_bytes")]
    weight = [weight_passes["waiting_bytes"]]
    weight += [weight_passes[n][f] for n in PASSES[1:] for f in ("time_s", "overlappable_s")]
    rigid = [*(unit[name] for name in (*RIGID, *RIGID_FLAGS)), *weight, split["output_bytes"]]
    maximized = [cost["time_s"] for cost in passes] + [split["backward_peak_bytes"]]
    return _Figures(*(_matrix(part, rows) for part in (weighed, maximized, rigid)))


def _matrix(columns: Sequence[Floats], rows: int) -> Floats:
    parts = [np.asarray(column, dtype=np.float64).reshape(rows, -1) for column in columns]
    return np.concatenate(parts, axis=1)


def _between(groups: Ints, is_off: Bools, figures: _Figures) -> Bools:
    """True for rows on the line from their group's row without the technique to its farthest."""
    between = np.zeros(len(groups), dtype=bool)
    off_rows = np.full(int(groups.max()) + 1, -1)
    off_rows[groups[is_off]] = np.flatnonzero(is_off)
    rows = np.flatnonzero((off_rows[groups] >= 0) & ~is_off)
    if not len(rows):
        return between
    off = off_rows[groups[rows]]
    away = figures.weighed[rows] - figures.weighed[off]
    scale = np.abs(figures.weighed).max(axis=0)
    used = (away != 0).any(axis=0)
    away, scale = away[:, used], scale[used]
    far = np.abs(away / scale).sum(axis=1)
    order = np.lexsort((far, groups[rows]))
    ends = np.full(len(off_rows), -1)
    ends[groups[rows][order]] = order  # the last one of a group is its farthest
    end = ends[groups[rows]]
    whole = away[end]
    column = np.abs(whole / scale).argmax(axis=1) if len(scale) else np.zeros(len(rows), np.int64)
    at = np.arange(len(rows))
    reach = whole[at, column] if len(scale) else np.zeros(len(rows))
    share = np.divide(away[at, column], reach, out=np.zeros(len(rows)), where=reach != 0)
    inside = (share > 0) & (share < 1)
    above = (away >= share[:, None] * whole - ROUNDING * scale).all(axis=1)
    low, high = figures.maximized[off], figures.maximized[rows[end]]
    own = figures.maximized[rows]
    within = (own <= np.maximum(low, high)).all(axis=1)
    peaks = own[:, -1] >= np.maximum(low, high)[:, -1]
    equal = (figures.rigid[rows] == figures.rigid[off]).all(axis=1)
    equal &= equal[end]
    between[rows[inside & above & within & peaks & equal]] = True
    return between
