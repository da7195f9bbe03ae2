"""Time calibrations from measured runs, simulated under factors."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...costmodel.calibration.fit import MAX_ROWS, MeasuredStep, fit_calibration
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ...datasets.published.runs import PublishedRun
from ...spec.cluster.calibration import SHIPPED, Calibration, CalibrationScope, Factors, unfitted
from ...spec.errors import InputError, NotBuiltError
from .priced_run import measured_s
from .published_run import PlannedRun, planned_run, simulation_arguments

Row = TypeVar("Row")
SAMPLE_SEED = 0
MAX_UNIT_RATIO = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableRun:
    """A timed row that can be priced."""

    run: PublishedRun
    requested: PlannedRun
    step_s: float

    @property
    def place(self) -> CalibrationScope:
        """The scope of its calibration."""
        plan = self.requested.plan
        stack = self.requested.problem.stack.name
        return CalibrationScope(plan.cluster.groups[0].device, stack, plan.workload.dtype.products)


def usable_run(run: PublishedRun) -> UsableRun:
    """The row, if usable.

    Raises:
        InputError: a value without meaning here, or no measured seconds.
        NotBuiltError: a value that this version does not serve.
    """
    requested = planned_run(simulation_arguments(run))
    seconds = measured_s(run, requested.plan.workload.global_batch)
    if seconds is None:
        raise InputError(f"{run.id}: step_time_s", "nothing", "seconds, or tokens a second")
    return UsableRun(run=run, requested=requested, step_s=seconds)


def usable_rows(runs: Sequence[PublishedRun]) -> list[UsableRun]:
    """Usable rows, in order."""
    usable = []
    for run in runs:
        try:
            usable.append(usable_run(run))
        except (InputError, NotBuiltError):
            continue
    return usable


def sample_rows(rows: Sequence[Row], most: int = MAX_ROWS) -> list[Row]:
    """Draw up to ``most`` rows by :data:`SAMPLE_SEED`, in their order."""
    if len(rows) <= most:
        return list(rows)
    chosen = sorted(random.Random(SAMPLE_SEED).sample(range(len(rows)), most))
    return [rows[number] for number in chosen]


def check_seconds(rows: Sequence[UsableRun]) -> None:
    """Check that rows are in seconds: no prediction is that far off.

    Raises:
        InputError: most steps are many times as long, or as short, as simulated.
    """
    times = statistics.median(row.step_s / step_simulator(row.requested)(SHIPPED) for row in rows)
    if not 1 / MAX_UNIT_RATIO <= times <= MAX_UNIT_RATIO:
        mistake = f"steps {times:.3g} times as long as they are simulated"
        raise InputError("--data: step_time_s", mistake, "seconds a step")


def fit_rows(name: str, rows: Sequence[UsableRun]) -> Calibration:
    """Fit a calibration to rows of one place."""
    (device, stack, products), *others = {row.place for row in rows}
    if others:
        raise ValueError("rows of several devices, stacks or formats")
    measured = [MeasuredStep(row.run.id, row.step_s, step_simulator(row.requested)) for row in rows]
    return fit_calibration(name, device, stack, measured, products)


def held_out_errors(rows: Sequence[UsableRun], calibration: Calibration) -> dict[str, Any]:
    """Return median errors of held-out rows, and interval coverage."""
    if not rows:
        return {"rows": 0}
    simulators = [step_simulator(row.requested) for row in rows]
    shipped, after = (
        [step_s(factors) / row.step_s for step_s, row in zip(simulators, rows, strict=True)]
        for factors in (SHIPPED, calibration.factors)
    )
    return {
        "rows": len(rows),
        "shipped_median_ape": statistics.median(abs(ratio - 1) for ratio in shipped),
        "median_ape": statistics.median(abs(ratio - 1) for ratio in after),
        "interval_holds": statistics.fmean(
            abs(math.log(ratio)) <= math.log1p(calibration.half_width) for ratio in after
        ),
    }


def step_simulator(requested: PlannedRun) -> Callable[[Factors], float]:
    """Step seconds as a function of factors; layers are lowered once."""
    plan, stack = requested.plan, requested.problem.stack
    lowering = Lowering(plan.model, plan.workload, stack, program=plan.program.techniques)

    def step_s(factors: Factors) -> float:
        machine = Machine(plan.cluster, unfitted(factors))
        simulation = Simulator(lowering, Pricer(machine, lowering.stack)).run(plan)
        if simulation is None:
            raise RuntimeError("a simulation without a limit ends")
        return simulation.step_time_s

    return step_s
