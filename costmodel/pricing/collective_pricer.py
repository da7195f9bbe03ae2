"""Seconds of collectives and messages, from a profile or by link rates."""

from __future__ import annotations

from collections import defaultdict

from ...datasets.catalogue.links import LinkRates
from ...spec.report.work_items import Collective
from ..kernel_latency.profile_table import Curve, Latency
from .collectives import collective_seconds, message_seconds, outermost_level
from .machine import Machine


class CollectivePricer:
    """Price collectives on one machine, each distinct one once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._curves = _collective_curves(machine)
        self._latencies: dict[Collective, Latency] = {}

    def latency(self, item: Collective) -> Latency:
        """Seconds of one undisturbed collective or message."""
        latency = self._latencies.get(item)
        if latency is None:
            latency = self._latencies[item] = self._price(item)
        return latency

    def _price(self, item: Collective) -> Latency:
        machine = self._machine
        curve = self._curves.get(_curve_key(item))
        # A profile times links within one node.
        if curve is not None and machine.in_node(level := outermost_level(item, machine)):
            seconds = curve.at(item.payload_bytes) * machine.link_factor(level)
            return self._at_changed_rates(item, Latency(seconds, "measured"))
        seconds = collective_seconds(item, machine)
        if item.ranks > 1 and machine.calibration is not None:
            seconds *= machine.link_factor(outermost_level(item, machine))
        return Latency(seconds, "analytic")

    def _at_changed_rates(self, item: Collective, listed: Latency) -> Latency:
        if not self._machine.rates.links:
            return listed
        machines = self._machine, self._machine.listed
        changed_s, listed_s = (collective_seconds(item, machine) for machine in machines)
        if changed_s == listed_s:
            return listed
        return Latency(listed.time_s * (changed_s / listed_s), "learned")

    def message_s(self, size_bytes: int, level: LinkRates) -> float:
        """Seconds of a message over a link level, without host time."""
        curve, factor = self._curves.get(("send", 2)), self._machine.link_factor(level)
        if curve is not None and self._machine.in_node(level):
            listed = next(one for one in self._machine.listed.levels if one.level == level.level)
            changed_s, listed_s = (message_seconds(size_bytes, one) for one in (level, listed))
            return curve.at(size_bytes) * factor * (changed_s / listed_s)
        return message_seconds(size_bytes, level) * factor


def _curve_key(item: Collective) -> tuple[str, int]:
    kind, ranks, *_ = item
    return ("send", 2) if kind in ("recv", "send_recv") else (kind, ranks)


def _collective_curves(machine: Machine) -> dict[tuple[str, int], Curve]:
    if machine.profile is None:
        return {}
    points: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for row in machine.profile.collectives:
        if row.beside_product:  # sharing a device is a factor of its own
            continue
        points[row.kind, row.ranks].append((row.payload_bytes, row.time_s))
    return {key: Curve(values) for key, values in points.items()}
