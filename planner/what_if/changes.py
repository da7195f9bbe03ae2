"""Changes of a setting by key: cluster, workload, words, rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...costmodel.kernel_latency.roofline import peak_flops_per_s
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.rate_changes import LinkRateChange
from ...datasets.clusters.resize import exchange, resize
from ...spec.choices import ATTENTIONS, OPTIMIZERS, OVERLAPS
from ...spec.cluster.cluster_spec import ClusterSpec, LevelName
from ...spec.errors import InputError, one_of
from ...spec.inputs.quantities import QuantityKind, quantity
from ...spec.inputs.what_if_keys import entry_of
from ...spec.limits import MAX_SAMPLES, MAX_SEQ_LEN
from ...spec.workload.document_lengths import ONE, lengths_text
from ...spec.workload.expert_load import (
    EVEN,
    ExpertLoad,
    RoutedLoad,
    load_text,
    load_violation,
    typed_load,
)
from ...spec.workload.number_formats import STATE_ROLES, USUAL_STATES, rate_name
from ...spec.workload.workload import DtypeRecord, Workload, state_formats
from .setting import Change, Given, Setting, Value, above_node, group_names

SLOWDOWNS = (1.0, 2.0)


def changed(setting: Setting, path: str, value: Given, where: str) -> tuple[Setting, Change]:
    """A setting with one key changed.

    Args:
        setting: the setting.
        path: a key as ``what_if_key`` writes it.
        value: its new value, or a factor such as ``2x``.
        where: its name in an error.

    Raises:
        InputError: an impossible value.
    """
    change = CHANGERS[entry_of(path).scope]
    return change(setting, path, value, where)


def _measured(path: str, value: Value, was: float, where: str) -> float:
    kind: QuantityKind = entry_of(path).kind  # type: ignore[assignment]
    return quantity(kind, value, was, where)


def _link(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    head, _, figure = path.partition(".")
    level = _level_called(setting.cluster, head)
    machine = next(
        Machine(cluster, rates=setting.rates)
        for cluster in _views(setting.cluster)
        if level in [link.level for link in cluster.levels]
    )
    rates = next(link for link in machine.levels if link.level == level)
    was = rates.bandwidth_bytes_per_s if figure == "bandwidth" else rates.latency_s
    now = _measured(path, value, was, where)
    links = {link.level: link for link in setting.rates.links}
    before = links.get(level, LinkRateChange(level=level))
    name = f"{figure}_factor"
    links[level] = replace(before, **{name: getattr(before, name) * (now / was)})
    rates_now = replace(setting.rates, links=tuple(links[key] for key in sorted(links)))
    return replace(setting, rates=rates_now), Change(path, was, now)


def _level_called(cluster: ClusterSpec, name: str) -> LevelName:
    if name != "inter_node":
        return name  # type: ignore[return-value]
    above = (above_node(cluster.alone(group)) for group in group_names(cluster))
    return next(level for level in above if level is not None)


def _views(cluster: ClusterSpec) -> list[ClusterSpec]:
    groups = [cluster.alone(name) for name in group_names(cluster)]
    joint = [cluster.joined_at(group_names(cluster)[0])] if len(cluster.groups) > 1 else []
    return groups + joint


def _device(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    if path == "device.hbm":
        return _hbm(setting, path, value, where)
    device, rates = setting.machine.device, setting.rates
    dtype = setting.workload.dtype
    name, was = {
        "device.bandwidth": ("memory_bandwidth_factor", device.memory_bandwidth_bytes_per_s),
        "device.flops": (
            "flops_factor",
            peak_flops_per_s(device, rate_name(dtype.matmul or dtype.param)),
        ),
        "device.launch": ("kernel_launch_factor", device.kernel_launch_s),
    }[path]
    now = _measured(path, value, was, where)
    factor = getattr(rates, name) * (now / was)
    return replace(setting, rates=replace(rates, **{name: factor})), Change(path, was, now)


def _hbm(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    was = setting.cluster.groups[0].memory.hbm_bytes
    now = int(_measured(path, value, was, where))
    if now < 1:
        raise InputError(where, value, "at least a byte of memory", "40GiB")
    groups = tuple(
        replace(group, memory=replace(group.memory, hbm_bytes=now))
        for group in setting.cluster.groups
    )
    return replace(setting, cluster=replace(setting.cluster, groups=groups)), Change(path, was, now)


def _kind(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    name = path.rpartition(".")[0] or setting.cluster.groups[0].name
    was = setting.cluster.group(name).device
    exchanged = exchange(setting.cluster, name, _word(value, where), where)
    now = exchanged.cluster.group(name).device
    return setting.resized(exchanged), Change(path, was, now)


def _count(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    name, _, key = path.rpartition(".")
    group = setting.cluster.group(name) if name else setting.cluster.groups[0]
    was = {
        "nodes": group.nodes,
        "devices": group.device_count,
        "devices_per_node": group.devices_per_node,
    }[key]
    now = _whole(path, value, was, where)
    nodes, per_node = group.nodes, group.devices_per_node
    if key == "nodes":
        nodes = now
    elif key == "devices_per_node":
        per_node = now
    elif now <= per_node:
        nodes, per_node = 1, now
    elif now % per_node:
        low = now // per_node * per_node
        allowed = f"whole nodes of {per_node}, or part of one"
        raise InputError(where, value, allowed, f"{low} or {low + per_node}")
    else:
        nodes = now // per_node
    resized = resize(setting.cluster, group.name, nodes, per_node, where)
    return setting.resized(resized), Change(path, was, now)


def _whole(path: str, value: Value, was: int, where: str) -> int:
    now = _measured(path, value, was, where)
    most = MAX_SEQ_LEN if path == "seq_len" else MAX_SAMPLES
    if not 1 <= now <= most:
        near = was if now < 1 else most
        raise InputError(where, value, f"a whole number from 1 to {most}", near)
    return int(now)


def _work(setting: Setting, path: str, value: Any, where: str) -> tuple[Setting, Change]:
    workload = setting.workload
    if path in ("global_batch", "seq_len"):
        size: int = getattr(workload, path)
        sizes = {path: _whole(path, value, size, where)}
        change = Change(path, size, sizes[path])
        workload = replace(workload, **sizes)  # type: ignore[arg-type]
    elif path == "optimizer":
        optimizer = one_of(where, _word(value, where), OPTIMIZERS)
        change = Change(path, workload.optimizer, optimizer)
        workload = replace(workload, optimizer=optimizer)
    elif path == "expert_load":
        load = _load(setting, value, where)
        change = Change(path, load_text(workload.expert_load), load_text(load))
        workload = replace(workload, expert_load=load)
    elif path == "lengths":
        one_of(where, _word(value, where), (ONE,))
        before = lengths_text(workload.lengths, workload.seq_len)
        change = Change(path, before, lengths_text(None, workload.seq_len))
        workload = replace(workload, lengths=None)
    else:
        was, word = workload.dtype, _word(value, where)
        if path == "dtype":
            record = _record(was, word, where)
        else:
            record = _states(workload, path, word, where)
        before, after = _dtype_words(path, was), _dtype_words(path, record)
        change, workload = Change(path, before, after), replace(workload, dtype=record)
    return replace(setting, workload=workload), change


def _load(setting: Setting, value: Given, where: str) -> ExpertLoad | None:
    traced = isinstance(value, RoutedLoad)
    load = value if isinstance(value, RoutedLoad) else typed_load(_word(value, where), where)
    if reason := load_violation(setting.model, load):
        given = "a routing trace" if traced else value
        raise InputError(where, given, f"a load of this model ({reason})", EVEN)
    return load


def _dtype_words(path: str, record: DtypeRecord) -> str:
    return record.shorthand if path == "dtype" else record.state_word(path)


def _record(was: DtypeRecord, name: str, where: str) -> DtypeRecord:
    """The record of another shorthand, with the same formats of states."""
    try:
        made = DtypeRecord.from_shorthand(name)
    except InputError as error:
        raise InputError(where, name, error.allowed, error.nearest) from None
    kept = {role: getattr(was, role) for roles in STATE_ROLES.values() for role in roles}
    kept = {role: held for role, held in kept.items() if held != USUAL_STATES}
    if kept.get("master") == was.param:
        kept["master"] = made.param
    return replace(made, **kept)


def _states(workload: Workload, path: str, word: str, where: str) -> DtypeRecord:
    try:
        return state_formats(workload.dtype, {path: word}, workload.optimizer)
    except InputError as error:
        raise InputError(where, word, error.allowed, error.nearest) from None


def _stack(setting: Setting, path: str, value: Value, where: str) -> tuple[Setting, Change]:
    rates = setting.rates
    if path == "stack.slowdown":
        was = setting.stack.overlap_slowdown
        now = _measured(path, value, was, where)
        if not SLOWDOWNS[0] <= now <= SLOWDOWNS[1]:
            raise InputError(where, value, "a factor from 1 to 2", min(2.0, max(1.0, now)))
        return replace(setting, rates=replace(rates, overlap_slowdown=now)), Change(path, was, now)
    if path == "stack.launch":
        was = setting.stack.launch_s
        if was == 0:
            raise InputError(where, value, "nothing here: this stack's kernels need no launch")
        now = _measured(path, value, was, where)
        rates = replace(rates, host_launch_factor=rates.host_launch_factor * (now / was))
        return replace(setting, rates=rates), Change(path, was, now)
    key = path.rpartition(".")[2]
    word = _word(value, where)
    choices = {"attention": ATTENTIONS, "overlap": OVERLAPS}.get(key)
    if choices is not None:
        one_of(where, word, choices)
    was_word = getattr(setting.stack, "name" if key == "stack" else key)
    return replace(setting, words={**setting.words, key: word}), Change(path, was_word, word)


def _word(value: Given, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(where, value, "a word")
    return value.strip()


Changer = Callable[[Setting, str, Any, str], tuple[Setting, Change]]
CHANGERS: Mapping[str, Changer] = {
    "link": _link,
    "device": _device,
    "kind": _kind,
    "count": _count,
    "workload": _work,
    "stack": _stack,
}
