"""What whole steps take beyond their kernels and collectives, fitted from steps of small plans.

Six constants, each with a meaning. Host seconds for every kernel (Python and dispatch), every
gather or reduction of a sharded unit, every message, and the step itself; what ranks wait for
one another at every collective inside a layer; and by how much kernels are slower inside a step,
where caches are cold, than repeated alone. Steps of plans whose counts differ are measured, what
the profile explains is taken off, and the constants follow by non-negative least squares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..costmodel.kernel_latency.table import KernelTable
from ..costmodel.lowering import Lowering
from ..costmodel.machine import Machine
from ..costmodel.prices import Pricer
from ..costmodel.simulate import Simulator
from ..costmodel.step import step_work
from ..datasets.catalogue.stack import stack
from ..spec.kernels import Kernel
from ..spec.plan import Plan
from ..spec.profile import MachineProfile
from .probes import local_ranks, message_probe, probe_plan, probes

CONSTANTS = ("kernel", "collective", "unit", "step")
LEAST_PROBES = 2
"""How many are timed even when the time is spent."""
HALVINGS = 20
"""Of the range that a message's time is looked for in: a millionth of it is left."""
Measure = Callable[[Plan], float]


def with_overheads(
    profile: MachineProfile, measure: Measure, coarse: bool, is_over: Callable[[], bool]
) -> MachineProfile:
    """The profile with the six constants of its machine.

    Args:
        profile: its kernels and collectives.
        measure: times a plan's step on real ranks, in seconds.
        coarse: fewer probes.
        is_over: whether the time is spent; then the probes so far must do, if they can.
    """
    bare = _with_constants(profile, {}, 1.0)
    table, pricer = KernelTable(bare), _pricer(bare)
    counts: list[list[float]] = []
    step_s: list[float] = []
    rest_s: list[float] = []
    for probe in probes(profile.ranks, coarse):
        if len(step_s) >= LEAST_PROBES and is_over():
            break
        plan = probe_plan(probe, profile.ranks)
        counts.append(_counts(plan, table))
        step_s.append(measure(plan))
        rest_s.append(step_s[-1] - _explained_s(plan, pricer))
    weights = 1 / np.array(step_s)  # the error that counts is relative to the step
    fit = non_negative_least_squares(np.array(counts, float), np.array(rest_s), weights)
    *host, excess = fit.tolist()
    found = dict(zip(CONSTANTS, host, strict=True))
    fitted = _with_constants(profile, found, 1 + excess)
    found["message"] = _message_s(fitted, measure)
    return _with_constants(profile, found, 1 + excess)


def _with_constants(
    profile: MachineProfile, host_s: dict[str, float], slowdown: float
) -> MachineProfile:
    known = {**dict.fromkeys((*CONSTANTS, "message"), 0.0), **host_s}
    return replace(profile, host_s=known, kernel_slowdown=slowdown)


def _pricer(profile: MachineProfile) -> Pricer:
    """Prices of the ranks that the profile was measured with: those of every probe."""
    return Pricer(Machine(local_ranks(profile.ranks), profile), stack("shardwright", on_cores=True))


def _explained_s(plan: Plan, pricer: Pricer) -> float:
    """The simulated step."""
    lowering = Lowering(plan.model, plan.workload, pricer.stack)
    simulation = Simulator(lowering, pricer).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s


def _counts(plan: Plan, table: KernelTable) -> list[float]:
    """How often each constant occurs in a one-stage step, in the order of CONSTANTS.

    The last number is the seconds of the kernels that the table prices.
    """
    chosen = stack("shardwright", on_cores=True)
    kernels = [item for item in step_work(plan, chosen, 0) if isinstance(item, Kernel)]
    micro_batches = plan.program.schedule.microbatches
    collectives = moves = 0
    for chunk in Lowering(plan.model, plan.workload, chosen).stage(plan, 0):
        for entry in chunk.layers:
            ways = (entry.lowered.forward, entry.lowered.backward)
            collectives += micro_batches * sum(len(way.collectives()) for way in ways)
            unit = entry.unit
            if unit is not None and unit.wrapped:
                moves += 2 * micro_batches if unit.gathers_each_use else 1
                moves += micro_batches if unit.reduces_each_micro_batch else 1
    prices = [price for item in kernels if (price := table.price(item)) is not None]
    kernel_s = sum(price.time_s for price in prices)
    return [len(kernels), collectives, moves, 1, kernel_s]


def _message_s(profile: MachineProfile, measure: Measure) -> float:
    """Host time of a message: with it the simulated two-stage step takes what was measured.

    Zero where the ranks do not make two stages, or the step needs no explanation.
    """
    probe = message_probe(profile.ranks)
    if probe is None:
        return 0.0
    plan = probe_plan(probe, profile.ranks)
    measured_s, pricer = measure(plan), _pricer(profile)
    low_s, high_s = 0.0, max(0.0, measured_s - _explained_s(plan, pricer))
    for _ in range(HALVINGS):
        pricer.message_s = middle_s = (low_s + high_s) / 2
        if _explained_s(plan, pricer) < measured_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return high_s


def non_negative_least_squares(
    matrix: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted least squares with no negative coefficient, by trying every set of columns.

    The columns are few; the best set whose own solution is positive is the optimum. Where there
    are fewer rows than columns, sets of at most half as many columns as rows are tried, for more
    would repeat the rows and say nothing of what lies between them.
    """
    short = matrix.shape[0] < matrix.shape[1]
    most = max(1, matrix.shape[0] // 2) if short else matrix.shape[1]
    rows, goal = matrix * weights[:, None], values * weights
    best, least = np.zeros(matrix.shape[1]), float(goal @ goal)
    for chosen in itertools.product((False, True), repeat=matrix.shape[1]):
        columns = np.flatnonzero(chosen)
        if len(columns) > most:
            continue
        solution, *_ = np.linalg.lstsq(rows[:, columns], goal, rcond=None)
        rest = rows[:, columns] @ solution - goal
        if (solution > 0).all() and rest @ rest < least:
            best, least = np.zeros(matrix.shape[1]), float(rest @ rest)
            best[columns] = solution
    return best
