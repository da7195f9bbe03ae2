"""Client handles: those of ``import shardwright``, served remotely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Report
from ..notebook.explanation_handle import ExplanationHandle
from ..notebook.plan_handle import PlanHandle, SimulationHandle
from ..notebook.run_result import RunResult
from ..notebook.what_if_handle import WhatIfs

if TYPE_CHECKING:
    from .client import Client


@dataclass(frozen=True, kw_only=True, repr=False)
class ServicePlanHandle(PlanHandle):
    """A plan that a service found.

    ``stack`` and ``measured`` would price it here; the service prices it with ``pricing``.
    """

    client: Client = field(repr=False, compare=False)
    pricing: Mapping[str, str] = field(repr=False)

    def simulate(self) -> SimulationHandle:
        """Simulate the same plan again on the service, with its timeline."""
        handle = self.client.simulate(self.plan, oom_risk=self.risk, **self.pricing)
        return replace(handle, report=self._with_assumptions(handle.report))

    def explain(self) -> ExplanationHandle:
        """Explain step and memory in terms that add up."""
        handle = self.client.explain(self.plan, oom_risk=self.risk, **self.pricing)
        return replace(handle, report=self._with_assumptions(handle.report))

    def _with_assumptions(self, report: Report) -> Report:
        return replace(report, assumptions=self.report.assumptions)

    def execute(self, steps: int = 20, **arguments: Any) -> RunResult:
        """Run the plan on the service's machine; return the ``execute`` document.

        Args:
            steps: optimizer step to reach.
            arguments: must be empty or unset; a service takes no other argument.

        Raises:
            InputError: the plan cannot run there, or the service runs none.
            RunError: the run failed.
        """
        for name in (name for name, value in arguments.items() if value not in (None, False)):
            raise InputError(name, arguments[name], "nothing: a service runs plans as they are")
        return self.client.execute(self.plan, steps)


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceSimulationHandle(ServicePlanHandle, SimulationHandle):
    """A plan that a service simulated, its timeline fetched lazily."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceWhatIfs(WhatIfs):
    """Answers of a service; ``document`` is its response."""

    document: Mapping[str, Any]

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """Re-planned plans by row; None where there is none.

        Sweeps of more than a hundred values omit them; a question about one value returns its plan.
        """
        rows = self.document.get("rows", [self.document])
        pairs = zip(self.result.answers, rows, strict=True)
        return tuple(
            answer.best.plan if answer.best is not None and "plan" in row["re_planned"] else None
            for answer, row in pairs
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan what-if --json`` writes."""
        return dict(self.document)
