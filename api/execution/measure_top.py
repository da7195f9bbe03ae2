"""``--measure-top K``: runs of the best plans, and a fitted calibration.

Every plan is run; measured and predicted times fit a calibration of this machine (on top of its
profile, if any), stored by name. Plans are then listed by measured time, each with its prediction
before and after.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...costmodel.calibration.fit import MAX_ROWS, MeasuredStep, fit_calibration
from ...costmodel.lowering.plan_lowering import Lowering
from ...costmodel.pricing.machine import Machine
from ...costmodel.pricing.pricer import Pricer
from ...costmodel.simulation.simulator import Simulator
from ...spec.cluster.calibration import SHIPPED, Calibration, Factors, unfitted
from ...spec.cluster.measured import CorrectedProfile, Measured, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..problem.stored_calibrations import save_calibration

RunPlanCallback = Callable[[Plan], dict[str, Any]]
"""Runs a plan and gives the contract's execute document."""
FLAG = "--measure-top"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A plan's run: document, and seconds predicted, measured and corrected."""

    plan: Plan
    document: dict[str, Any]
    predicted_s: float
    measured_s: float
    corrected_s: float

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, without the run itself."""
        return {
            "plan": self.plan.to_document(),
            "plan_hash": self.plan.hash,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "corrected_s": self.corrected_s,
        }


def check_count(count: int) -> int:
    """Return the count, if a calibration can be fitted to it.

    Raises:
        InputError: none, or too many.
    """
    if not 1 <= count <= MAX_ROWS:
        raise InputError(FLAG, count, f"1 to {MAX_ROWS} plans", min(max(count, 1), MAX_ROWS))
    return count


def measure_plans(
    plans: list[Plan], stack: StackSpec, measured: Measured | None, run: RunPlanCallback
) -> tuple[list[MeasuredPlan], Calibration]:
    """Run plans and fit a calibration to their steps, fastest plan first.

    ``plans`` share model, workload and cluster. Factors of an earlier calibration in ``measured``
    are refitted.

    Raises:
        RunError: a run failed.
    """
    base = profile_of(measured)
    simulators = [partial(_step_s, plan, stack, base) for plan in plans]
    documents = [run(plan) for plan in plans]
    seconds = [float(document["measured"]["step_time_s"]) for document in documents]
    rows = [
        MeasuredStep(plan.hash, step_s, simulate)
        for plan, step_s, simulate in zip(plans, seconds, simulators, strict=True)
    ]
    first = plans[0]
    device, products = first.cluster.groups[0].device, first.workload.dtype.products
    fitted = fit_calibration(calibration_name(first), device, stack.name, rows, products)
    fitted = replace(fitted, profile="" if base is None else base.fingerprint)
    runs = [
        MeasuredPlan(
            plan=plan,
            document=document,
            predicted_s=simulate(SHIPPED),
            measured_s=step_s,
            corrected_s=simulate(fitted.factors),
        )
        for plan, document, step_s, simulate in zip(
            plans, documents, seconds, simulators, strict=True
        )
    ]
    save_calibration(fitted)
    return sorted(runs, key=lambda one: one.measured_s), fitted


def calibration_name(plan: Plan) -> str:
    """Name of the calibration of a plan's model on its cluster."""
    ranks = sum(stage.device_count for stage in plan.program.stages)
    text = f"measured-{plan.model.name}-{plan.cluster.groups[0].device}-{ranks}"
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:64]


def _step_s(plan: Plan, stack: StackSpec, base: Any, factors: Factors) -> float:
    trial: Measured = unfitted(factors)
    if base is not None:
        trial = CorrectedProfile(profile=base, calibration=unfitted(factors))
    lowering = Lowering(plan.model, plan.workload, stack, program=plan.program.techniques)
    pricer = Pricer(Machine(plan.cluster, trial), lowering.stack)
    simulation = Simulator(lowering, pricer).run(plan)
    if simulation is None:
        raise RuntimeError("a simulation without a limit ends")
    return simulation.step_time_s
