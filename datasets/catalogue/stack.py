"""Stacks: training software as data, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ...spec.errors import InputError, nearest_name
from ...spec.stack import AllocatorModel, KernelFusion, OverlapKinds, StackSpec
from .tables import figure, read_table

NO_FIGURES = ("name", "memory")
GROUPS: dict[str, type[Any]] = {
    "fusion": KernelFusion,
    "overlaps": OverlapKinds,
    "allocator": AllocatorModel,
}


@cache
def stacks() -> Mapping[str, StackSpec]:
    """Every stack by name, in catalogue order."""
    return {name: _stack(name, _row(name), {}) for name in read_table("stacks")}


@cache
def stack_sources(name: str) -> Mapping[str, str]:
    """The source of each figure of a stack, by its path."""
    sources: dict[str, str] = {}
    _stack(name, _row(name), sources)
    return sources


def _row(name: str) -> Mapping[str, Any]:
    """The figures of a stack; one that is ``like`` another states only what differs."""
    row: Mapping[str, Any] = read_table("stacks")[name]
    if "like" not in row:
        return row
    other = _row(row["like"])
    groups = {key: {**other[key], **row[key]} for key in GROUPS if key in row}
    return {**other, **row, **groups}


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


def stack(name: str, where: str = "--stack") -> StackSpec:
    """The stack called ``name``.

    Raises:
        InputError: no such stack; the nearest names are given.
    """
    found = stacks().get(name)
    if found is None:
        raise InputError(where, name, ", ".join(stacks()), nearest_name(name, stacks()))
    return found
