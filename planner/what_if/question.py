"""Question about a plan: changed keys, added devices, resulting settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...datasets.clusters.parsed_cluster import ParsedCluster, expansion
from ...datasets.clusters.resize import enlarge
from ...spec.errors import InputError
from ...spec.inputs.what_if_keys import what_if_key
from .changes import changed
from .same_plan import check_setting
from .setting import Change, Given, Setting, Value, group_names, level_names

Scale = Literal["batch", "fixed"]
SCALES: tuple[Scale, ...] = ("batch", "fixed")
MOST_VALUES = 100
RESIZING = (("device",), ("nodes", "devices", "devices_per_node"))
"""Keys that make another cluster, in the order in which they build on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One key and its successive values."""

    path: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Changes to the setting of a plan.

    ``sets`` hold in every row; ``sweep`` makes a row of each value; ``add`` joins the cluster;
    ``scale`` is ``batch`` if the global batch grows with the devices.
    """

    sets: tuple[tuple[str, Given], ...] = ()
    sweep: Sweep | None = None
    add: ParsedCluster | None = None
    scale: Scale = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting to price, its changes, and its sweep value."""

    setting: Setting
    changes: tuple[Change, ...]
    value: Value | None = None


def rows_of(question: Question, base: Setting) -> list[Row]:
    """The settings of a question, a row each.

    Raises:
        InputError: nothing to change, an unknown key, a key twice, an impossible value.
    """
    sweep = question.sweep
    if not question.sets and sweep is None and question.add is None:
        near = "--set inter_node.bandwidth=2x"
        raise InputError("--set", "nothing", "a change: --set, --sweep or --add", near)
    if sweep is None:
        return [_row(question, base, question.sets, None)]
    if not 1 <= len(sweep.values) <= MOST_VALUES:
        allowed = f"KEY=a,b,c with 1 to {MOST_VALUES} values"
        raise InputError("--sweep", f"{len(sweep.values)} values", allowed, f"{sweep.path}=…,…")
    return [_row(question, base, question.sets, value) for value in sweep.values]


def _row(
    question: Question, base: Setting, sets: Sequence[tuple[str, Given]], value: Value | None
) -> Row:
    setting, changes = base, list[Change]()
    if question.add is not None:
        setting, change = _added(setting, question.add)
        changes.append(change)
    named: list[tuple[str, str, Given]] = [("--set", path, given) for path, given in sets]
    if question.sweep is not None and value is not None:
        named.append(("--sweep", question.sweep.path, value))
    for flag, path, new_value in _canonical(named, setting):
        where = f"{flag} {path}"
        setting, change = changed(setting, path, new_value, where)
        changes.append(change)
        check_setting(setting, where)
    if question.scale == "batch":
        setting, changes = _scaled(setting, base, changes)
    return Row(setting=setting, changes=tuple(changes), value=value)


def _canonical(
    named: list[tuple[str, str, Given]], setting: Setting
) -> list[tuple[str, str, Given]]:
    """Canonical keys, in the order in which they build on each other.

    Levels are those of the changed cluster: links of added nodes may change too.
    """
    keys: list[tuple[str, str, Given]] = []
    counted = setting
    for flag, path, value in sorted(named, key=lambda item: _order(item[1])):
        levels, groups = level_names(counted.cluster), group_names(counted.cluster)
        name = what_if_key(path, flag, levels, groups)
        if any(name == other for _, other, _ in keys):
            raise InputError(f"{flag} {name}", "the key twice", "each key once")
        keys.append((flag, name, value))
        if _order(name) < len(RESIZING):
            counted, _ = changed(counted, name, value, f"{flag} {name}")
    totals = [name for _, name, _ in keys if _last(name) == "devices"]
    others = [name for _, name, _ in keys if _last(name) in ("nodes", "devices_per_node")]
    if totals and others:
        raise InputError(totals[0], f"beside {others[0]}", "one of the two", others[0])
    return keys


def _order(path: str) -> int:
    """Place of a key: devices of another kind first, then their number, then the rest."""
    last = _last(path)
    return next((n for n, keys in enumerate(RESIZING) if last in keys), len(RESIZING))


def _last(path: str) -> str:
    return path.rpartition(".")[2].strip().casefold().replace("-", "_")


def _added(setting: Setting, added: ParsedCluster) -> tuple[Setting, Change]:
    was = expansion(setting.cluster)
    enlarged = enlarge(setting.cluster, added, "--add")
    return setting.resized(enlarged), Change("cluster", was, expansion(enlarged.cluster))


def _scaled(setting: Setting, base: Setting, changes: list[Change]) -> tuple[Setting, list[Change]]:
    """Batch grown with the devices, on top of its other changes."""
    was, devices = setting.workload.global_batch, setting.cluster.device_count
    now, rest = divmod(was * devices, base.cluster.device_count)
    if rest or now < 1:
        growth = f"{devices} instead of {base.cluster.device_count} devices"
        allowed = f"fixed, for {growth} make no whole batch of {was} samples"
        raise InputError("--scale", "batch", allowed, "fixed")
    if now == was:
        return setting, changes
    kept = [change for change in changes if change.path != "global_batch"]
    grown = Change("global_batch", base.workload.global_batch, now)
    return replace(setting, workload=replace(setting.workload, global_batch=now)), [*kept, grown]
