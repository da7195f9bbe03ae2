"""Bounds' columns where parameters are fetched from another tier before gathers.

A layer's copy begins when the layer before begins, its gather follows the copy, and the layer
follows its gather: so a pass takes at least all copies and gathers and the work of its last layer.
Copies, gathers and reductions share the device with the layers next to theirs, and work and traffic
are slower by the stack's factor. A layer next to a rare one of little work (an embedding) is an
exception, counted once per pass for each such pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .arrays import Floats
from .pass_kinds import ENDS, KINDS, STEP_END
from .pass_table import PassTable, with_adjacent_layers

FORWARD = np.arange(KINDS) < len(ENDS)


class _Slowdown(NamedTuple):
    """Seconds by which neighbors are slower, and traffic itself, shape (options, KINDS)."""

    before_s: Floats
    after_s: Floats
    fetching_s: Floats


def with_neighbors(
    tables: Mapping[int, PassTable], layer_classes: Sequence[int], slowdown: float
) -> dict[int, PassTable]:
    """Tables of a stage context by what certainly runs beside each other's layers.

    Args:
        tables: of each layer class.
        layer_classes: class of every layer.
        slowdown: factor of work and traffic sharing the device.
    """
    fetching = {k for k, table in tables.items() if table.fetched_s.any()}
    if not fetching:
        return with_adjacent_layers(tables, slowdown)
    least_s = np.min([table.least_s for table in tables.values()], axis=0)
    common_s = np.min([tables[k].least_s for k in fetching], axis=0)
    has_after = np.any([_after_s(table).any(axis=0) for table in tables.values()], axis=0)
    slowdowns = {
        k: _slowdown(table, common_s if k in fetching else least_s, has_after, slowdown - 1.0)
        for k, table in tables.items()
    }
    most = [_most(slowdowns[k]) for k in fetching]
    beside_s = np.max([np.maximum(before, after) for before, after, _ in most], axis=0)
    fetching_s = np.max([fetching for *_, fetching in most], axis=0)
    pairs = _exceptions(layer_classes, fetching)
    return {
        k: _with_columns(
            table, slowdowns[k], k in fetching, pairs[k] * beside_s, pairs[k] * fetching_s
        )
        for k, table in tables.items()
    }


def _before_s(table: PassTable) -> Floats:
    """Copies and overlapped gathers before a layer."""
    return np.where(FORWARD, table.first_exposed_s, table.last_exposed_s)


def _after_s(table: PassTable) -> Floats:
    """Overlapped reductions after a layer, while the next one runs."""
    seconds: Floats = np.where(FORWARD, 0.0, table.first_exposed_s)
    seconds[:, STEP_END] = 0.0
    return seconds


def _slowdown(table: PassTable, work_s: Floats, has_after: Floats, extra: float) -> _Slowdown:
    """What a layer's traffic certainly slows down beside neighbors of ``work_s``."""
    before_s, after_s = _before_s(table), _after_s(table)
    gathered_s = before_s - table.fetched_s
    return _Slowdown(
        extra * np.minimum(before_s, np.where(has_after, work_s / 2, work_s)),
        extra * np.minimum(after_s, work_s / 2),
        extra * (np.minimum(table.fetched_s, work_s) + np.minimum(gathered_s, work_s)),
    )


def _most(slowdown: _Slowdown) -> _Slowdown:
    return _Slowdown(*(seconds.max(axis=0) for seconds in slowdown))


def _exceptions(layer_classes: Sequence[int], fetching: set[int]) -> Counter[int]:
    """Neighbors among fetching classes' layers of each other class."""
    pairs: Counter[int] = Counter()
    for one, other in pairwise(layer_classes):
        if (one in fetching) != (other in fetching):
            pairs[other if one in fetching else one] += 1
    return pairs


def _with_columns(
    table: PassTable, slowdown: _Slowdown, fetches: bool, beside_s: Floats, fetching_s: Floats
) -> PassTable:
    """The table with columns of a stage context where some class fetches.

    Args:
        table: of a layer class.
        slowdown: by its traffic.
        fetches: True if it is a class that fetches.
        beside_s: seconds of other classes' slowdown that its layers may lack, in a pass.
        fetching_s: the same of copies and gathers.
    """
    own, columns = _most(slowdown), table.columns.copy()
    columns["slowdown"] = slowdown.before_s + slowdown.after_s
    columns["traffic"] = _before_s(table) + (slowdown.fetching_s if fetches else 0.0)
    for name, seconds in (("slowdown", 0.0), ("traffic", columns["work"][:, STEP_END])):
        columns[name][:, STEP_END] = seconds
    lacking_s = fetching_s + (own.fetching_s if fetches else 0.0)
    lacking_s[STEP_END] = 0.0
    return replace(
        table,
        columns=columns,
        once_s=-own.before_s - own.after_s - beside_s,
        traffic_once_s=-lacking_s,
    )
