"""The record of a solved problem."""

from __future__ import annotations

from dataclasses import dataclass

from ...costmodel.pricing.pricer import Pricer
from ...spec.cluster.measured import Measured, profile_of
from ...spec.plan.plan import Plan
from ...spec.report.report import (
    Advice,
    Alternative,
    Assumption,
    Prediction,
    SearchResult,
    Sensitivity,
)
from ..candidates.evaluator import Outcome
from .problem import Problem

IDLE_DEVICES = "idle_devices"
"""Path of the note on devices that a plan leaves idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Best plan of a problem, with the findings of its search.

    Attributes:
        plan: the answer.
        prediction: of its step and memory.
        source_share: shares of its step time by price source.
        pricing: the priced software, in words.
        tables: names of the price tables.
        search: bound, gap, space, ranking and effort of the search.
        alternatives: other plans, the best first.
        sensitivities: of the step time to the machine's resources.
        advice: near requests that are served better; why the plan is fragile.
        notes: assumptions of the search: idle devices, the largest size.
    """

    plan: Plan
    prediction: Prediction
    source_share: dict[str, float]
    pricing: str
    tables: tuple[str, ...]
    search: SearchResult
    alternatives: tuple[Alternative, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    advice: tuple[Advice, ...] = ()
    notes: tuple[Assumption, ...] = ()

    @property
    def objective_value(self) -> float:
        """Objective of the plan, the less the better."""
        return self.search.objective.value


def pricing_text(pricer: Pricer) -> str:
    """Priced software: stack, attention and overlap."""
    stack = pricer.stack
    choices = f"attention {stack.attention}, overlap {pricer.overlap}"
    return f"{stack.name} {stack.version} ({choices})"


def price_tables(measured: Measured | None) -> tuple[str, ...]:
    """Names of the price tables: catalogue, and profile if any."""
    profile = profile_of(measured)
    return ("catalogue",) if profile is None else ("catalogue", f"profile {profile.measured_at}")


def idle_devices_notes(problem: Problem, best: Outcome) -> tuple[Assumption, ...]:
    """Devices left idle by a plan, if any."""
    idle = problem.cluster.device_count - best.decision.shape.devices
    if not idle:
        return ()
    why = f"the best plan leaves {idle} of {problem.cluster.device_count} devices idle"
    return (Assumption(path=IDLE_DEVICES, value=idle, why=why),)
