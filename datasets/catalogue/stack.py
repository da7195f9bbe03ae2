"""Stacks: training frameworks as data, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from ...spec.cluster.stack_spec import (
    AllocatorModel,
    KernelFusion,
    OverlapKinds,
    StackLimits,
    StackSpec,
)
from ...spec.errors import InputError
from .stack_settings import Settings, parse_stack, setting_figures, stack_text
from .tables import figure, read_table

ON_CORES = "on_cores"
NO_FIGURES = ("name", "memory", "product_chunks", "expert_chunks")
GROUPS: dict[str, type[Any]] = {
    "fusion": KernelFusion,
    "overlaps": OverlapKinds,
    "allocator": AllocatorModel,
    "limits": StackLimits,
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
    base, settings = _effective(*parse_stack(name, "--stack"))
    _stack(name, _with_settings(_row(base, on_cores), settings), sources)
    return sources


def _effective(base: str, settings: Settings) -> tuple[str, dict[str, str]]:
    """The settings that change a figure, on accelerators, of the stack as set so far."""
    row, kept = _row(base, on_cores=False), {}
    for key, value in settings.items():
        changes = setting_figures(key, value)
        changed = _merged(row, changes)
        if any(_values(changed, name) != _values(row, name) for name in changes):
            kept[key], row = value, changed
    return base, kept


def _values(row: Mapping[str, Any], name: str) -> Any:
    if name in GROUPS:
        return {key: value for key, (value, _) in row[name].items()}
    return row[name][0]


def _with_settings(row: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    for key, value in settings.items():
        row = _merged(row, setting_figures(key, value))
    return row


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
            values[item.name] = _value(row, item.name, sources)
            continue
        inner: dict[str, str] = {}
        parts = {f.name: _value(row[item.name], f.name, inner) for f in fields(group)}
        values[item.name] = group(**parts)
        sources.update({f"{item.name}.{key}": source for key, source in inner.items()})
    return StackSpec(name=name, **values)


def _value(row: Mapping[str, Any], name: str, sources: dict[str, str]) -> Any:
    value = figure(row, name, sources)
    return tuple(value) if isinstance(value, list) else value


def stack(name: str, where: str = "--stack", on_cores: bool = False) -> StackSpec:
    """The stack of ``NAME`` or ``NAME:setting=value,…``, on accelerators or ``on_cores``.

    Its name holds the settings that change a figure, and reads as the same stack again.

    Raises:
        InputError: no such stack, setting or value; the nearest are given.
    """
    base, settings = _effective(*parse_stack(name, where))
    if not settings:
        return stacks(on_cores)[base]
    return _stack(stack_text(base, settings), _with_settings(_row(base, on_cores), settings), {})


def canonical_stack(name: str) -> str:
    """A stack's name as :func:`stack` has it; an unknown one as it is."""
    try:
        return stack(name).name
    except InputError:
        return name


def overlap_settings(name: str, where: str = "--stack") -> Mapping[str, tuple[str, bool]]:
    """Settings of overlap in a stack's name, by the kind of communication.

    Raises:
        InputError: no such stack, setting or value.
    """
    _, settings = parse_stack(name, where)
    return {
        kind: (f"{key}={value}", is_hidden)
        for key, value in settings.items()
        for kind, (is_hidden, _) in setting_figures(key, value).get("overlaps", {}).items()
    }
