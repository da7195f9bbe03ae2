"""Time of whole steps beyond kernels and collectives, fitted to small plans.

Six constants. Host seconds for every kernel (Python and dispatch), every gather or reduction of a
sharded unit, every message, and the step itself; the time that ranks wait for one another at every
collective inside a layer; and the slowdown of kernels inside a step, where caches are cold, over
repeated runs alone. Steps of plans with different counts are measured, the part that the profile
explains is subtracted, and the constants follow by non-negative least squares.

On cores all of it adds up, so the constants are counted (:func:`_counts`). On other devices the
host runs ahead and is exposed only where it is slower than the kernels, so the simulated step is
linearized around the last guess instead (:mod:`host_fit`); and the host time of a sharded unit
is a constant of each pass of a layer, which kernels hide like launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...costmodel.kernel_latency.profile_table import KernelTable
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.lowering.step_work import step_work
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ...datasets.catalogue.device import CPU
from ...datasets.catalogue.stack import stack
from ...spec.cluster.machine_profile import MachineProfile
from ...spec.cluster.stack_spec import StackSpec
from ...spec.plan.plan import Plan
from ...spec.report.work_items import Kernel
from .host_fit import fit_simulation, non_negative_least_squares
from .probes import local_ranks, message_probe, probe_plan, probes

CONSTANTS = ("kernel", "collective", "unit", "step")
"""On cores; the slowdown of kernels follows them."""
DEVICE_CONSTANTS = ("kernel", "collective", "layer_pass", "step")
"""On other devices."""
MIN_PROBES = 2
"""Probes that are timed even past the budget."""
HALVINGS = 20
"""Of the search interval of a message's time: a millionth of it is left."""
Measure = Callable[[Plan], float]
Seconds = NDArray[np.float64]


def with_overheads(
    profile: MachineProfile, measure: Measure, coarse: bool, is_over: Callable[[], bool]
) -> MachineProfile:
    """The profile with the six constants of its machine.

    Args:
        profile: its kernels and collectives, and a launch's time if measured.
        measure: times a plan's step on real ranks, in seconds.
        coarse: fewer probes.
        is_over: True once the time is spent; then the probes so far must do, if they can.
    """
    plans: list[Plan] = []
    step_s: list[float] = []
    for probe in probes(profile.ranks, coarse, profile.device):
        if len(step_s) >= MIN_PROBES and is_over():
            break
        plans.append(probe_plan(probe, profile.ranks, profile.device))
        step_s.append(measure(plans[-1]))
    fit = _by_counts if profile.device == CPU else _by_simulation
    fitted = fit(profile, plans, np.array(step_s))
    message_s = _message_s(fitted, measure)
    return replace(fitted, host_s={**fitted.host_s, "message": message_s})


def _by_counts(profile: MachineProfile, plans: list[Plan], step_s: Seconds) -> MachineProfile:
    bare = _with_constants(profile, {}, 1.0)
    table, pricer = KernelTable(bare), _pricer(bare)
    counts = np.array([_counts(plan, table) for plan in plans], float)
    residual_s = step_s - np.array([_explained_s(plan, pricer) for plan in plans])
    # The error that counts is relative to the step.
    *host, excess = non_negative_least_squares(counts, residual_s, 1 / step_s).tolist()
    return _with_constants(profile, dict(zip(CONSTANTS, host, strict=True)), 1 + excess)


def _by_simulation(profile: MachineProfile, plans: list[Plan], step_s: Seconds) -> MachineProfile:
    def with_values(values: list[float]) -> MachineProfile:
        *host, excess = values
        return _with_constants(profile, dict(zip(DEVICE_CONSTANTS, host, strict=True)), 1 + excess)

    def simulated(values: list[float]) -> list[float]:
        pricer = _pricer(with_values(values))
        return [_explained_s(plan, pricer) for plan in plans]

    launch_s = profile.host_s.get("launch", stack("shardwright").launch_s)
    start = [launch_s, *[0.0] * len(DEVICE_CONSTANTS)]
    return with_values(fit_simulation(simulated, step_s, start))


def _with_constants(
    profile: MachineProfile, host_s: dict[str, float], slowdown: float
) -> MachineProfile:
    names = CONSTANTS if profile.device == CPU else DEVICE_CONSTANTS
    launch = {"launch": profile.host_s["launch"]} if "launch" in profile.host_s else {}
    constants = {**launch, **dict.fromkeys((*names, "message"), 0.0), **host_s}
    return replace(profile, host_s=constants, kernel_slowdown=slowdown)


def _pricer(profile: MachineProfile) -> Pricer:
    machine = Machine(local_ranks(profile.ranks, profile.device), profile)
    return Pricer(machine, _stack(profile))


def _stack(profile: MachineProfile) -> StackSpec:
    return stack("shardwright", on_cores=profile.device == CPU)


def _explained_s(plan: Plan, pricer: Pricer) -> float:
    lowering = Lowering(plan.model, plan.workload, pricer.stack)
    simulation = Simulator(lowering, pricer).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s


def _counts(plan: Plan, table: KernelTable) -> list[float]:
    """Occurrences of each of CONSTANTS in a one-stage step.

    The last number is the seconds of the kernels that the table prices.
    """
    framework = stack("shardwright", on_cores=True)
    kernels = [item for item in step_work(plan, framework, 0) if isinstance(item, Kernel)]
    micro_batches = plan.program.schedule.microbatches
    collectives = unit_collectives = 0
    for chunk in Lowering(plan.model, plan.workload, framework).stage(plan, 0):
        for entry in chunk.layers:
            directions = (entry.lowered.forward, entry.lowered.backward)
            collectives += micro_batches * sum(
                len(direction.collectives()) for direction in directions
            )
            unit = entry.unit
            if unit is not None and unit.wrapped:
                unit_collectives += 2 * micro_batches if unit.gathers_each_use else 1
                unit_collectives += micro_batches if unit.reduces_each_micro_batch else 1
    prices = [price for item in kernels if (price := table.price(item)) is not None]
    kernel_s = sum(price.time_s for price in prices)
    return [len(kernels), collectives, unit_collectives, 1, kernel_s]


def _message_s(profile: MachineProfile, measure: Measure) -> float:
    """Host time of a message, from a two-stage step's measured time.

    Zero if the ranks do not make two stages, or the step needs no explanation.
    """
    probe = message_probe(profile.ranks, profile.device)
    if probe is None:
        return 0.0
    plan = probe_plan(probe, profile.ranks, profile.device)
    measured_s, pricer = measure(plan), _pricer(profile)
    low_s, high_s = 0.0, max(0.0, measured_s - _explained_s(plan, pricer))
    for _ in range(HALVINGS):
        pricer.message_s = middle_s = (low_s + high_s) / 2
        if _explained_s(plan, pricer) < measured_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s
