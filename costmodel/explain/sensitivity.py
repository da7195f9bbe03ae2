"""Sensitivities of a plan: its step simulated with one resource slightly better.

FLOP/s and memory bandwidth of the devices and the bandwidth of each link level change by a factor
in turn. The step's change shows which resource it waits for; the rest is latencies, launches and
the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...spec.cluster.cluster_spec import ClusterSpec
from ...spec.plan.plan import Plan
from ...spec.report.report import Sensitivity
from ..pricing.rate_changes import LinkRateChange, RateChanges
from ..simulation.simulator import Simulator

CHANGE = 0.01
"""Relative improvement of each resource."""


def sensitivities(plan: Plan, simulator: Simulator, step_time_s: float) -> tuple[Sensitivity, ...]:
    """Effect of one per cent more of each resource on a step.

    ``simulator`` is the plan's at unchanged rates, ``step_time_s`` its result.
    """
    machine = simulator.pricer.machine
    results = []
    for resource, rates in _better(plan.cluster, machine.rates):
        simulation = simulator.on(replace(machine, rates=rates)).run(plan)
        if simulation is None:
            raise RuntimeError("a simulation without a limit ends")
        change = simulation.step_time_s / step_time_s - 1
        results.append(Sensitivity(resource=resource, change=CHANGE, step_time_change=change))
    return tuple(results)


def _better(cluster: ClusterSpec, rates: RateChanges) -> Iterator[tuple[str, RateChanges]]:
    """Resources by ``plan what-if`` name, with improved rates."""
    factor = 1 + CHANGE
    yield "device.flops", replace(rates, flops_factor=rates.flops_factor * factor)
    yield (
        "device.bandwidth",
        replace(rates, memory_bandwidth_factor=rates.memory_bandwidth_factor * factor),
    )
    levels = [level for group in cluster.groups for level in cluster.alone(group.name).levels]
    changes = {link.level: link for link in rates.links}
    for name in dict.fromkeys(level.level for level in (*levels, *cluster.levels)):
        link = changes.get(name, LinkRateChange(level=name))
        others = tuple(other for other in rates.links if other.level != name)
        improved = replace(link, bandwidth_factor=link.bandwidth_factor * factor)
        yield f"{name}.bandwidth", replace(rates, links=(*others, improved))
