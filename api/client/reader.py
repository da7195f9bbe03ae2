"""Answers of a service as handles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...costmodel.memory.feasibility import DEFAULT_RISK
from ...spec.cluster.stack_spec import StackSpec
from ...spec.plan.plan import Plan
from ...spec.report.report import Report
from ...spec.report.timeline import Timeline, from_perfetto
from ..notebook.plan_handle import PlanHandle
from ..notebook.run_result import RunResult
from ..notebook.what_if_handle import WhatIfs
from ..problem.resolve import Inputs, plan_pricing
from .answers import ServiceSize
from .handles import ServicePlanHandle, ServiceSimulationHandle, ServiceWhatIfs
from .jobs import JobKind
from .results import report_of, what_if_of

if TYPE_CHECKING:
    from .client import Client


class Reader:
    """Maker of handles that query a client again."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def plan(
        self, job: Mapping[str, Any], pricing: Mapping[str, str], risk: float | None
    ) -> PlanHandle:
        """Read the plan of a search; of a cancelled one the best."""
        if job.get("answer") is None:
            return self._client.simulate(job["best"], oom_risk=risk, **pricing)
        report = report_of(job["answer"])
        return ServicePlanHandle(report=report, **self._handle_fields(report, pricing, risk))

    def simulation(
        self, document: Mapping[str, Any], pricing: Mapping[str, str], risk: float | None
    ) -> ServiceSimulationHandle:
        """Read a simulation."""
        report = report_of(document)

        def spans() -> Timeline:
            trace = self._client.trace(report.plan, **pricing)
            return from_perfetto(json.dumps(trace), "trace")

        handle_fields = self._handle_fields(report, pricing, risk)
        return ServiceSimulationHandle(report=report, **handle_fields, spans=spans)

    def _handle_fields(
        self, report: Report, pricing: Mapping[str, str], risk: float | None
    ) -> dict[str, Any]:
        return {
            "stack": _stack(report.plan, pricing),
            "risk": DEFAULT_RISK if risk is None else risk,
            "client": self._client,
            "pricing": pricing,
        }

    def what_ifs(self, job: Mapping[str, Any]) -> WhatIfs:
        """Read the answers to a question; those until it was canceled."""
        return ServiceWhatIfs(result=what_if_of(job["answer"]), document=job["answer"])

    def size(self, job: Mapping[str, Any]) -> ServiceSize:
        """Read a training's size, or fine-tunings side by side."""
        return ServiceSize(document=job["answer"])

    def run(self, job: Mapping[str, Any]) -> RunResult:
        """Read the measured result of a run."""
        return RunResult(job["answer"])

    def reader_of(self, kind: JobKind) -> Callable[[Mapping[str, Any]], Any]:
        """Choose the reader of a kind of job."""
        if kind == "plan":
            return lambda job: self.plan(job, *_pricing_and_risk(job))
        readers = {"what-if": self.what_ifs, "size": self.size, "run": self.run}
        return readers[kind]


def _pricing_and_risk(job: Mapping[str, Any]) -> tuple[dict[str, str], float | None]:
    question = job["asked"]
    pricing = {name: question[name] for name in ("stack", "calibration") if question.get(name)}
    return pricing, question.get("oom_risk")


def _stack(plan: Plan, pricing: Mapping[str, str]) -> StackSpec:
    words = {name: word for name, word in pricing.items() if name != "calibration"}
    return plan_pricing(plan, Inputs(**words, calibration="none"))[0]  # type: ignore[arg-type]
