"""Stacks: training frameworks as data, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ...spec.cluster.stack_spec import AllocatorModel, KernelFusion, OverlapKinds, StackSpec
from ...spec.errors import InputError, nearest_name
from .tables import figure, read_table

ON_CORES = "on_cores"
NO_FIGURES = ("name", "memory")
GROUPS: dict[str, type[Any]] = {
    "fusion": KernelFusion,
    "overlaps": OverlapKinds,
    "allocator": AllocatorModel,
}


@cache
def stacks(on_cores: bool = False) -> Mapping[str, StackSpec]:
    """Every stack by name, in catalogue order.

    ``on_cores`` as it runs on a machine's cores.
    """
    return {name: _stack(name, _row(name, on_cores), {}) for name in read_table("stacks")}


@cache
def stack_sources(name: str, on_cores: bool = False) -> Mapping[str, str]:
    """The source of each figure of a stack, by its path."""
    sources: dict[str, str] = {}
    _stack(name, _row(name, on_cores), sources)
    return sources


def _row(name: str, on_cores: bool) -> Mapping[str, Any]:
    """The figures of a stack, over those of its ``like``.

    The same for its table of differences on cores.
    """
    row: Mapping[str, Any] = read_table("stacks")[name]
    if "like" in row:
        row = _merged(_row(row["like"], on_cores=False), row)
    return _merged(row, row[ON_CORES]) if on_cores and ON_CORES in row else row


def _merged(row: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = {key: {**row[key], **changes[key]} for key in GROUPS if key in changes}
    return {**row, **changes, **groups}


def _stack(name: str, row: Mapping[str, Any], sources: dict[str, str]) -> StackSpec:
    values: dict[str, Any] = {}
    for item in fields(StackSpec):
        if item.name in NO_FIGURES:
            continue
        group = GROUPS.get(item.name)
        if group is None:
            value = figure(row, item.name, sources)
            values[item.name] = tuple(value) if isinstance(value, list) else value
            continue
        inner: dict[str, str] = {}
        parts = {f.name: figure(row[item.name], f.name, inner) for f in fields(group)}
        values[item.name] = group(**parts)
        sources.update({f"{item.name}.{key}": source for key, source in inner.items()})
    return StackSpec(name=name, **values)


def stack(name: str, where: str = "--stack", on_cores: bool = False) -> StackSpec:
    """The stack called ``name``, as it runs on accelerators or ``on_cores``.

    Raises:
        InputError: no such stack; the nearest names are given.
    """
    table = stacks(on_cores)
    match = table.get(name)
    if match is None:
        raise InputError(where, name, ", ".join(table), nearest_name(name, table))
    return match
