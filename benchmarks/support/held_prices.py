"""Prices of plans on held links, beside steps that were timed there."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from harness.work import Work
from support.held_steps import held_steps

from shardwright.api.cli.profile import DEFAULT_BUDGET_S
from shardwright.costmodel.explain.breakdown import breakdown
from shardwright.costmodel.pricing.machine import Machine
from shardwright.costmodel.simulation.simulator import Simulation, Simulator
from shardwright.datasets.catalogue.stack import stack
from shardwright.profiler.sweep import QUICK_BUDGET_S, measure
from shardwright.spec.cluster.cluster_spec import ClusterSpec
from shardwright.spec.cluster.machine_profile import MachineProfile
from shardwright.spec.plan.plan import Plan

EXPOSED = ("exposed_dp", "exposed_tp", "exposed_ep")


def placed(plan: Plan, cluster: ClusterSpec) -> Plan:
    """The plan on another cluster.

    Raises:
        ValueError: it is not legal there.
    """
    moved = replace(plan, cluster=cluster)
    if violations := moved.check():
        raise ValueError(str(violations[0]))
    return moved


def held_profile(work: Work, ranks: int) -> MachineProfile:
    """The profile of as many cores at once as ranks run, without collectives.

    Those that it would have are of links that nothing holds.
    """
    work.say("profiling")
    profile = measure(work.sized(DEFAULT_BUDGET_S, QUICK_BUDGET_S), ranks)
    return replace(profile, collectives=())


def simulated(plan: Plan, profile: MachineProfile) -> Simulation:
    """The plan's step, priced with a machine's profile."""
    machine = Machine(plan.cluster, profile)
    simulation = Simulator.for_plan(plan, machine, stack("shardwright", on_cores=True)).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation


def timed_and_priced(
    work: Work, plans: Mapping[str, Plan], rounds: int, steps: int, timeout_s: float
) -> dict[str, dict[str, float]]:
    """Median and predicted seconds of each plan, and its predicted share of exposed exchanges."""
    work.say("timing steps over held links")
    times = held_steps(plans, work.sized(rounds, 1), steps, timeout_s)
    profile = held_profile(work, next(iter(plans.values())).cluster.device_count)
    found = {}
    for name, plan in plans.items():
        simulation = simulated(plan, profile)
        terms = breakdown(simulation)
        found[name] = {
            "measured_s": statistics.median(times[name]),
            "predicted_s": simulation.step_time_s,
            "exposed": sum(terms[term] for term in EXPOSED) / simulation.step_time_s,
        }
    return found
