"""Every figure behind prices of a cluster and stack, with sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...costmodel.kernel_latency.device_latency import DeviceLatency
from ...costmodel.kernel_latency.roofline import formula_constants
from ...costmodel.pricing.host_rates import FULL_DUPLEX, LINK_SHARE, NODE_BYTES_PER_S
from ...datasets.catalogue.device import CPU, Device, device
from ...datasets.catalogue.fabric import COLLECTIVES, fabric
from ...datasets.catalogue.node import Node, node, nodes
from ...datasets.catalogue.source_kind import TYPED, SourceKind, source_kind
from ...datasets.catalogue.stack import stack, stack_sources
from ...spec.cluster.cluster_spec import ClusterSpec, DeviceGroup, LinkLevel
from ...spec.cluster.stack_spec import StackSpec

CURVE_COLLECTIVES = frozenset(COLLECTIVES) - {"send"}
"""Collectives that a measured fabric has a curve for; a send is priced by that of another."""
KERNEL_FIGURES = (
    "memory_bandwidth_bytes_per_s",
    "matmul_ceiling",
    "memory_ceiling",
    "kernel_launch_s",
    "sm_count",
)
"""Figures of a device that its kernels are priced with, its peak rates apart."""
STEP_FIGURES = (
    "efficiency",
    "small_efficiency",
    "launch_s",
    "latency_s",
    "bulk_launch_s",
    "bulk_latency_s",
)
"""Figures of a fabric that price a collective which no curve was measured for."""
LATENCY_FIGURES = ("launch_s", "latency_s", "bulk_launch_s")
"""What takes the place of a curve's set-up where a person typed the latency."""
HOST_FIGURES = (
    ("host_link_share", LINK_SHARE, "assumed: large pinned copies, beside headers of packets"),
    ("both_ways_slowdown", FULL_DUPLEX, "assumed: full duplex; a profile's rows replace it"),
    ("host_memory_bytes_per_s", NODE_BYTES_PER_S, "assumed: half of two sockets of DDR4-3200"),
)
"""Figures of a host that prices of copies and of its work read, where its memory is granted."""
NOT_PRICED = ("version", "compile", "optimizer")
"""Entries of a stack that describe it and that no price reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Figure: owner, name, value in SI units, source.

    ``kind`` derives from the source's words, as everywhere in the catalogue.
    """

    part: str
    of: str
    figure: str
    value: Any
    source: str
    kind: SourceKind = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", source_kind(self.source))


def priced_figures(
    cluster: ClusterSpec, chosen: StackSpec, dtypes: Iterable[str], scans: bool
) -> tuple[Figure, ...]:
    """Figures of devices, nodes, fabrics, formulas and stack, each once.

    Peak rates are those of ``dtypes``; ``scans``: layers have chunked scans.
    """
    formats, flash = tuple(dtypes), chosen.attention == "flash"
    figures: list[Figure] = []
    for group in cluster.groups:
        item = device(group.device)
        networked = any(fabric(x.fabric).scope == "network" for x in _levels(cluster, group))
        figures += _device_figures(item, group, formats, flash, networked)
        figures += _formula_figures(item, chosen.flash_generation if flash else None, scans)
        figures += _node_figures(cluster, group)
        for level in _levels(cluster, group):
            figures += _level_figures(level)
    figures += _stack_figures(chosen, cluster.groups[0].device == CPU)
    return tuple({(f.of, f.figure, str(f.value), f.source): f for f in figures}.values())


def _levels(cluster: ClusterSpec, group: DeviceGroup) -> tuple[LinkLevel, ...]:
    return cluster.seen_from(group.name).levels


def _device_figures(
    item: Device, group: DeviceGroup, dtypes: tuple[str, ...], flash: bool, networked: bool
) -> Iterator[Figure]:
    def known(name: str, value: Any, source: str | None = None) -> Figure:
        origin = item.sources[name] if source is None else source
        return Figure(part="device", of=item.name, figure=name, value=value, source=origin)

    for dtype in dict.fromkeys(d if d in item.peak_flops_per_s else "fp32" for d in dtypes):
        yield known(f"peak_flops_per_s.{dtype}", item.peak_flops_per_s[dtype])
    copies = bool(group.memory.host_bytes) and item.name != CPU
    for name in (*KERNEL_FIGURES, *(["host_link_bytes_per_s"] if networked or copies else [])):
        yield known(name, getattr(item, name))
    if DeviceLatency(item, 3).learns:
        yield known("l2_bytes", item.l2_bytes)
    if flash:
        yield known("flash_attention", item.flash_attention)
    memory = group.memory.hbm_bytes
    capped = None if memory == item.capacity_bytes else TYPED
    if capped and item.name == CPU:
        capped = f"derived: this machine's memory divided by {group.device_count} devices"
    yield known("capacity_bytes", memory, capped)


def _formula_figures(item: Device, flash: int | None, scans: bool) -> Iterator[Figure]:
    for constant in formula_constants(item, flash, scans):
        yield Figure(
            part="formula",
            of=item.name,
            figure=constant.name,
            value=constant.value,
            source=constant.source(item),
        )


def _node_figures(cluster: ClusterSpec, group: DeviceGroup) -> Iterator[Figure]:
    if group.node not in nodes():  # this machine
        return
    host, used = node(group.node), {level.fabric for level in _levels(cluster, group)}
    for name in ("pair_link", "link", "rack_link", "network"):
        if getattr(host, name) in used:
            yield _node_figure(host, name)
    if group.memory.host_bytes and group.device != CPU:
        yield _node_figure(host, "devices_per_host_link")
        for figure, value, source in HOST_FIGURES:
            yield Figure(part="node", of=host.name, figure=figure, value=value, source=source)
    if group.memory.nvme_bytes:
        yield _node_figure(host, "drive_read_bytes_per_s")
        yield _node_figure(host, "drive_write_bytes_per_s")


def _node_figure(host: Node, name: str) -> Figure:
    value, source = getattr(host, name), host.sources[name]
    return Figure(part="node", of=host.name, figure=name, value=value, source=source)


def _level_figures(level: LinkLevel) -> Iterator[Figure]:
    """Yield figures of a level's fabric, or the typed rates."""
    item = fabric(level.fabric)
    owner = f"{item.name} ({level.level})"
    typed = {"bandwidth_bytes_per_s": level.bandwidth_bytes_per_s, "latency_s": level.latency_s}
    names = ["bandwidth_bytes_per_s", "duplex"]
    if item.adapters and level.bandwidth_bytes_per_s is None:
        names.insert(0, "adapters")
    measured = {kind for kind, _ in item.curves}
    if measured:
        names.append("curves")
    if not measured.issuperset(CURVE_COLLECTIVES):
        names += STEP_FIGURES
    elif level.latency_s is not None:
        names += LATENCY_FIGURES
    for name in names:
        rate = typed.get(name)
        of, source = (item.name, item.sources[name]) if rate is None else (owner, TYPED)
        value = getattr(item, name) if rate is None else rate
        value = f"{len(item.curves)} fits" if name == "curves" else value
        yield Figure(part="fabric", of=of, figure=name, value=value, source=source)
    if item.scope == "network":
        over = level.oversubscription
        source = "assumed: none was typed" if over == 1 else TYPED
        yield Figure(part="fabric", of=owner, figure="oversubscription", value=over, source=source)


def _stack_figures(chosen: StackSpec, on_cores: bool) -> Iterator[Figure]:
    listed = stack(chosen.name, on_cores=on_cores)
    sources = stack_sources(chosen.name, on_cores)
    for name, source in sources.items():
        value, usual = _value(chosen, name), _value(listed, name)
        if name in NOT_PRICED:
            continue
        if value != usual:
            source = "derived: flash where the devices have its kernels, else unfused"
        yield Figure(part="stack", of=chosen.name, figure=name, value=value, source=source)


def _value(chosen: StackSpec, path: str) -> Any:
    value: Any = chosen
    for name in path.split("."):
        value = getattr(value, name)
    return list(value) if isinstance(value, tuple) else value
