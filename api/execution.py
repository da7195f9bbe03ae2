"""Running a plan on this machine, and holding the run against the prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..costmodel.compare import compare_terms, relative_error
from ..costmodel.feasibility import DEFAULT_RISK
from ..executor.launch import run_plan
from ..profiler.store import newest_profile, save_profile
from ..profiler.sweep import QUICK_BUDGET_S, measure
from ..spec.errors import InputError
from ..spec.measured import Measured
from ..spec.plan import Plan
from ..spec.profile import MachineProfile
from ..spec.report import Assumption, Prediction
from ..spec.stack import StackSpec
from .reports import Simulated, simulate_plan

DEFAULT_STEPS = 10
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteOptions:
    """How a plan is run: steps to reach, seed, text, checks, trace file."""

    steps: int = DEFAULT_STEPS
    seed: int = 0
    data: str | None = None
    tokenizer: str | None = None
    verify: bool = False
    trace_file: Path | None = None


def ensure_profile(devices: int, on_event: OnEvent) -> MachineProfile:
    """The newest profile of this machine with so many ranks; measured now, where there is none.

    Measuring takes some 20 s.

    Args:
        devices: ranks that will work at once.
        on_event: told ``{"phase": "profile", …}`` before anything is measured.
    """
    profile = newest_profile(devices)
    if profile is None:
        on_event({"phase": "profile", "budget_s": QUICK_BUDGET_S})
        profile = measure(QUICK_BUDGET_S, devices, on_event)
        save_profile(profile)
    return profile


def execute_plan(
    plan: Plan,
    stack: StackSpec,
    measured: Measured | None,
    options: ExecuteOptions,
    on_event: OnEvent,
    assumptions: tuple[Assumption, ...] = (),
) -> dict[str, Any]:
    """Run a plan and compare; the contract's ``execute`` document, with the comparison.

    Args:
        plan: a legal plan for this machine.
        stack: the stack that priced it.
        measured: what prices it beside the catalogue, None for nothing.
        options: how to run.
        on_event: told of every step.
        assumptions: behind the prediction.

    Raises:
        RunError: the run failed.
        InputError: the plan is priced for a stack that the executor is not.
    """
    if stack.name != "shardwright":
        allowed = "shardwright: that is what runs here"
        raise InputError("--stack", stack.name, allowed, "shardwright")
    simulated = simulate_plan(plan, stack, measured, assumptions, DEFAULT_RISK)
    payload = {
        "steps": options.steps,
        "seed": options.seed,
        "data": options.data,
        "tokenizer": options.tokenizer,
        "verify": options.verify,
        "attention": stack.attention,
        "trace": True,
        "trace_file": None if options.trace_file is None else str(options.trace_file),
    }

    def relay(rank: int, event: dict[str, Any]) -> None:
        if rank == 0:
            on_event(event)

    result = run_plan(plan, payload, relay)
    return _document(plan, simulated, result)


def _document(plan: Plan, simulated: Simulated, result: dict[str, Any]) -> dict[str, Any]:
    measured = dict(result["measured"])
    if by_stage := measured.pop("allocated_bytes", None):  # compiled code of cores hides it
        measured["allocated_bytes"] = max(by_stage)
        measured["allocated_bytes_by_stage"] = by_stage
    measured["rss_growth_bytes"] = result["rss_growth_bytes"]
    document = {
        "plan_hash": plan.hash,
        "measured": measured,
        "predicted": simulated.report.prediction.to_document(),
        "comparison": _comparison(plan, simulated, result),
    }
    return {**document, "verify": result["verify"]} if "verify" in result else document


def _comparison(plan: Plan, simulated: Simulated, result: dict[str, Any]) -> dict[str, Any]:
    """Relative errors, and the terms of the critical stage beside those of a traced step."""
    prediction = simulated.report.prediction
    measured = result["measured"]
    stage = simulated.simulation.critical.stage
    rank = sum(s.device_count for s in plan.program.stages[:stage])
    traced = result["traced"]
    terms = compare_terms(
        prediction.breakdown_s, traced["breakdown_by_rank_s"][rank], measured["step_time_s"]
    )
    return {
        "step_time_error": relative_error(prediction.step_time_s, measured["step_time_s"]),
        "allocated_error": _byte_errors(prediction, measured.get("allocated_bytes")),
        "stage": stage,
        "traced_step_time_s": traced["step_time_s"],
        "terms": [asdict(term) for term in terms],
    }


def _byte_errors(prediction: Prediction, measured: list[int] | None) -> list[float]:
    """Relative errors of each stage's bytes; none where they were not measured."""
    if measured is None:
        return []
    predicted = [row.allocated_bytes for row in prediction.memory]
    return [relative_error(b, a) for b, a in zip(predicted, measured, strict=True)]
