"""The record of a solved problem."""

from __future__ import annotations

from dataclasses import dataclass

from ...costmodel.pricing.pricer import Pricer
from ...spec.cluster.measured import Measured, profile_of
from ...spec.plan.plan import Plan
from ...spec.report.report import Alternative, Assumption, Prediction, SearchResult, Sensitivity
from ..candidates.evaluator import Outcome
from .problem import Problem

IDLE_DEVICES = "idle_devices"
"""Path of the note on devices that a plan leaves idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best plan of a problem, and what its search found beside it.

    Attributes:
        plan: the plan that answers.
        prediction: of its step and memory.
        source_share: shares of its step time by the source of the price.
        pricing: the software whose steps are priced, in words.
        tables: names of the tables that the prices come from.
        search: bound, gap, space, ranking and effort of the search.
        alternatives: other plans, the best first.
        sensitivities: of the step time to the machine's resources.
        notes: what the search itself assumed: devices that stay idle, the size it found.
    """

    plan: Plan
    prediction: Prediction
    source_share: dict[str, float]
    pricing: str
    tables: tuple[str, ...]
    search: SearchResult
    alternatives: tuple[Alternative, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    notes: tuple[Assumption, ...] = ()

    @property
    def objective_value(self) -> float:
        """The objective's value of the plan, the less the better."""
        return self.search.objective.value


def pricing_text(pricer: Pricer) -> str:
    """The software that a pricer prices: its stack, attention and overlap."""
    stack = pricer.stack
    choices = f"attention {stack.attention}, overlap {pricer.overlap}"
    return f"{stack.name} {stack.version} ({choices})"


def price_tables(measured: Measured | None) -> tuple[str, ...]:
    """Names of the tables behind prices: the catalogue, and a profile if there is one."""
    profile = profile_of(measured)
    return ("catalogue",) if profile is None else ("catalogue", f"profile {profile.measured_at}")


def idle_devices_notes(problem: Problem, best: Outcome) -> tuple[Assumption, ...]:
    """The devices that a plan leaves idle, if any."""
    idle = problem.cluster.device_count - best.decision.shape.devices
    if not idle:
        return ()
    why = f"the best plan leaves {idle} of {problem.cluster.device_count} devices idle"
    return (Assumption(path=IDLE_DEVICES, value=idle, why=why),)
