"""Fabrics: links between devices inside a node, and between nodes.

A fabric of scope ``node`` (NVLink, Infinity Fabric, PCI Express, shared memory) gives every device
its own link; one of scope ``network`` (InfiniBand, RoCE, Slingshot, TCP) gives every node some
adapters, which its devices share. Rates are one direction; ``duplex``: both directions run at once.

Cost of a collective. A ring of n ranks takes ``ring_steps`` steps and sends
``wire_fraction x payload`` bytes a rank, the payload being the largest buffer of a rank. Libraries
change protocol with the size, so a curve is two regimes, and the seconds are

    min over regimes of  setup_s + wire_bytes / (bandwidth_bytes_per_s x efficiency)

Where a fabric was measured (``curves``) the regimes are fits; otherwise they come from the
per-step latencies. Worked number: NVLink4, all-gather of 256 MiB over 8 ranks sends 235 MB a
rank; with the bulk regime (23 us, 0.735 of 450 GB/s) that is 0.73 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from ...spec.errors import InputError, nearest_name
from .tables import figure, read_table

Scope = Literal["node", "network"]
Technology = Literal[
    "nvlink",
    "infinity_fabric",
    "pcie",
    "shared_memory",
    "infiniband",
    "roce",
    "slingshot",
    "efa",
    "tcp",
]
Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"]
COLLECTIVES: tuple[Collective, ...] = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "send",
)
FIGURES = (
    "bandwidth_bytes_per_s",
    "duplex",
    "efficiency",
    "small_efficiency",
    "launch_s",
    "latency_s",
    "bulk_launch_s",
    "bulk_latency_s",
)


def ring_steps(kind: str, ranks: int) -> int:
    """Steps of a ring collective.

    2(n - 1) for an all-reduce, 1 for a send, else n - 1.
    """
    if kind == "send":
        return 1
    return 2 * (ranks - 1) if kind == "all_reduce" else ranks - 1


def wire_fraction(kind: str, ranks: int) -> float:
    """Bytes that one rank sends over the payload.

    2(n - 1)/n, 1 or (n - 1)/n.
    """
    return 1.0 if kind == "send" else ring_steps(kind, ranks) / ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """One protocol: set-up seconds, and the reached fraction of the rate."""

    setup_s: float
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A catalogue fabric; rates are nominal, efficiencies the fractions collectives reach.

    ``bandwidth_bytes_per_s`` is one direction of one device's link (scope node) or of one
    adapter (scope network). ``efficiency`` is the fraction that large messages reach.
    ``launch_s`` is once a collective and ``latency_s`` once a step of small messages; the
    ``bulk_`` pair is the same for large ones. ``curves`` maps (kind, ranks) to fitted regimes.
    """

    name: str
    scope: Scope
    technology: Technology
    adapters: int
    bandwidth_bytes_per_s: float
    duplex: bool
    efficiency: float
    small_efficiency: float
    launch_s: float
    latency_s: float
    bulk_launch_s: float
    bulk_latency_s: float
    curves: Mapping[tuple[str, int], tuple[Regime, Regime]] = field(hash=False)
    sources: Mapping[str, str] = field(hash=False)

    @property
    def node_bandwidth_bytes_per_s(self) -> float:
        """One direction of all adapters of a node.

        Of one device's link for scope node.
        """
        return self.bandwidth_bytes_per_s * max(1, self.adapters)

    def device_bandwidth_bytes_per_s(
        self, devices_per_node: int, host_link_bytes_per_s: float | None = None
    ) -> float:
        """One device's share, one direction, while all of its node send.

        Args:
            devices_per_node: devices that share the node's adapters.
            host_link_bytes_per_s: rate of the device's bus to the adapters, if that counts.
        """
        if self.scope == "node":
            return self.bandwidth_bytes_per_s
        share = self.node_bandwidth_bytes_per_s / devices_per_node
        return share if host_link_bytes_per_s is None else min(share, host_link_bytes_per_s)

    def regimes(self, kind: str, ranks: int) -> tuple[Regime, Regime]:
        """The small-message and the bulk regime of a collective over ``ranks`` ranks.

        Between measured rank counts both figures are interpolated; past the largest one the
        set-up grows with the steps. A send is measured as a 2-rank all-to-all.
        """
        if kind == "send" and ("send", 2) not in self.curves:
            kind, ranks = "all_to_all", 2
        counts = sorted(n for k, n in self.curves if k == kind)
        if not counts:
            return self._stepwise(kind, ranks)
        if ranks <= counts[0]:
            return self.curves[(kind, counts[0])]
        if ranks >= counts[-1]:
            growth = ring_steps(kind, ranks) / ring_steps(kind, counts[-1])
            small, bulk = self.curves[(kind, counts[-1])]
            return _scaled(small, growth), _scaled(bulk, growth)
        above = next(n for n in counts if n >= ranks)
        below = counts[counts.index(above) - 1]
        weight = (ranks - below) / (above - below)
        low, high = self.curves[(kind, below)], self.curves[(kind, above)]
        return _blend(low[0], high[0], weight), _blend(low[1], high[1], weight)

    def _stepwise(self, kind: str, ranks: int) -> tuple[Regime, Regime]:
        steps = ring_steps(kind, ranks)
        small = Regime(
            setup_s=self.launch_s + steps * self.latency_s, efficiency=self.small_efficiency
        )
        bulk_s = self.bulk_launch_s + steps * self.bulk_latency_s
        return small, Regime(setup_s=bulk_s, efficiency=self.efficiency)


def _scaled(regime: Regime, growth: float) -> Regime:
    return Regime(setup_s=regime.setup_s * growth, efficiency=regime.efficiency)


def _blend(low: Regime, high: Regime, weight: float) -> Regime:
    return Regime(
        setup_s=low.setup_s + weight * (high.setup_s - low.setup_s),
        efficiency=low.efficiency + weight * (high.efficiency - low.efficiency),
    )


@cache
def fabrics() -> Mapping[str, Fabric]:
    """Every fabric by name, in catalogue order."""
    table = read_table("fabrics")
    return {name: _fabric(name, _inherited(row, table), table) for name, row in table.items()}


def _inherited(row: Mapping[str, Any], table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with figures of the fabric that it is ``like``, as assumptions."""
    if "like" not in row:
        return row
    model = _inherited(table[row["like"]], table)
    figures = {key: [model[key][0], f"assumed: {row['like']}"] for key in FIGURES}
    return {**figures, "scope": model["scope"], "technology": model["technology"], **row}


def _fabric(name: str, row: Mapping[str, Any], table: Mapping[str, Any]) -> Fabric:
    curve_row = row
    sources = {"adapters": row["adapters"][1]} if "adapters" in row else {}
    if "curves_like" in row:
        curve_row = table[row["curves_like"]]
        sources["curves"] = f"assumed: the fractions and set-ups measured on {row['curves_like']}"
    elif "curves" in row:
        sources["curves"] = row["curves_source"]
    values = {key: figure(row, key, sources) for key in FIGURES}
    curves = {
        (kind, ranks): (
            Regime(setup_s=small_s, efficiency=small),
            Regime(setup_s=bulk_s, efficiency=bulk),
        )
        for kind, ranks, small_s, small, bulk_s, bulk in curve_row.get("curves", [])
    }
    return Fabric(
        name=name,
        scope=row["scope"],
        technology=row["technology"],
        adapters=row.get("adapters", [0])[0],
        curves=curves,
        sources=sources,
        **values,
    )


def fabric(name: str, where: str = "fabric", scope: Scope | None = None) -> Fabric:
    """The fabric called ``name``, upper and lower case alike.

    A count left out is 1 adapter.

    Args:
        name: a catalogue name such as ``8x400G-IB``, or ``100G-ETH`` for ``1x100G-ETH``.
        where: name of the value in an error.
        scope: refuse fabrics of the other scope.

    Raises:
        InputError: no such fabric; the nearest names are given.
    """
    by_name = {key.casefold(): item for key, item in fabrics().items()}
    names = [item.name for item in by_name.values() if scope in (None, item.scope)]
    match = by_name.get(name.casefold()) or by_name.get(f"1x{name.casefold()}")
    if match is None or match.name not in names:
        allowed = "a fabric of the catalogue: " + ", ".join(names)
        raise InputError(where, name, allowed, nearest_name(name, names))
    return match
