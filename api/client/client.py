"""``sw.Client(url)``: the functions of ``import shardwright`` over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...spec.errors import InputError, nearest_name
from ..notebook.comparison_handle import ComparisonHandle
from ..notebook.explanation_handle import ExplanationHandle
from ..notebook.plan_handle import PlanHandle, SimulationHandle
from ..notebook.run_result import RunResult
from ..notebook.what_if_handle import WhatIfs, handle_inputs
from ..problem.resolve import Inputs
from ..views.comparison import ComparisonSide
from ..what_if.inputs import SetValues, SweepValues
from .answers import ServiceDiagnosis, ServiceSize
from .bodies import what_if_body, without_none
from .file_requests import file_request, size_request, text_file, trace_document
from .jobs import PATHS, Job, JobKind
from .reader import Reader
from .requests import (
    COST_FLAGS,
    PRICING_FLAGS,
    checked_flags,
    plan_document,
    plan_request,
    pricing_words,
    simulation_request,
)
from .results import explanation_of
from .transport import Transport

TIMEOUT_S, PATIENCE_S = 30.0, 60.0


class Client:
    """The functions of ``import shardwright``, answered by a service.

    Arguments, handles and errors are the same, so a notebook works with either. Files are read
    here; ``local``, profiles and calibrations are the service's. ``plan``, ``what_if``, ``size``
    and ``execute`` wait for a durable job; Ctrl-C cancels it and returns the best so far. Their
    ``submit_…`` forms do not wait.

    Args:
        url: of the service, as ``plan serve`` prints it.
        token: one of its token file, if it has one.
        timeout_s: limit of one request.
        patience_s: for how long an unresponsive service, such as a restarting one, is retried.

    Raises:
        InputError: no usable address or token.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._transport = Transport(url, token, timeout_s, patience_s)
        self._reader = Reader(self)

    def __enter__(self) -> Client:
        """The client; leaving the block closes its connections."""
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; jobs go on."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"<Client {self._transport.url}>"

    def plan(self, model: Any = None, cluster: Any = None, **arguments: Any) -> PlanHandle:
        """Search for the best plan, as :func:`shardwright.plan` does.

        Args:
            model: likewise.
            cluster: likewise; by default the service's machine.
            arguments: likewise; ``deadline_s`` is at most 600, and 60 by default.

        Raises:
            InputError: an argument that cannot be used.
            InfeasibleError: nothing fits.
            RunError: the service failed.
        """
        return self.submit_plan(model, cluster, **arguments).wait()

    def submit_plan(
        self, model: Any = None, cluster: Any = None, **arguments: Any
    ) -> Job[PlanHandle]:
        """Submit a search without waiting; arguments as of :meth:`plan`."""
        body, pricing, risk = plan_request(model, cluster, arguments)
        return self._submit("plan", body, lambda job: self._reader.plan(job, pricing, risk))

    def simulate(
        self,
        plan_or_model: Any = None,
        cluster: Any = None,
        *,
        oom_risk: float | None = None,
        **flags: Any,
    ) -> SimulationHandle:
        """Price one plan, feasible or not, as :func:`shardwright.simulate` does."""
        if isinstance(plan_or_model, PlanHandle) and cluster is None:
            cost = {name: flags.pop(name) for name in COST_FLAGS if name in flags}
            flags = {**_priced_as(plan_or_model, flags), **cost}
            oom_risk = plan_or_model.risk if oom_risk is None else oom_risk
        body, pricing = simulation_request(plan_or_model, cluster, oom_risk, flags)
        document = self._transport.post("/v1/simulations", body)
        return self._reader.simulation(document, pricing, oom_risk)

    def trace(self, plan: Any, **flags: Any) -> dict[str, Any]:
        """Timeline of a plan's step in Perfetto's format."""
        body, _ = simulation_request(plan_document(plan), None, None, flags)
        answer = self._transport.post("/v1/simulations", {**body, "include": ["trace"]})
        trace: dict[str, Any] = answer["trace"]
        return trace

    def explain(
        self, plan: Any, *, oom_risk: float | None = None, **flags: Any
    ) -> ExplanationHandle:
        """Break down a plan's step, as :func:`shardwright.explain` does."""
        flags = _priced_as(plan, flags)
        if isinstance(plan, PlanHandle) and oom_risk is None:
            oom_risk = plan.risk
        body, _ = simulation_request(plan_document(plan), None, oom_risk, flags)
        answer = self._transport.post("/v1/simulations", {**body, "include": ["explain"]})
        return explanation_of(answer)

    def compare(self, first: Any, second: Any, **flags: Any) -> ComparisonHandle:
        """Compare two plans, as :func:`shardwright.compare` does."""
        sides = [
            ComparisonSide(name=name, report=self._simulated(plan, flags).report)
            for name, plan in (("first", first), ("second", second))
        ]
        return ComparisonHandle(first=sides[0], second=sides[1])

    def _simulated(self, plan: Any, flags: Mapping[str, Any]) -> PlanHandle:
        source = plan if isinstance(plan, PlanHandle) else plan_document(plan)
        return self.simulate(source, **flags)

    def what_if(self, plan: Any, **arguments: Any) -> WhatIfs:
        """Price a plan in a changed setting, as :func:`shardwright.what_if` does.

        Args:
            plan: a handle, a Plan or the path of a plan file.
            arguments: likewise; a sweep may have 5000 values.

        Raises:
            InputError: a question that cannot be asked of this plan.
        """
        return self.submit_what_if(plan, **arguments).wait()

    def submit_what_if(
        self,
        plan: Any,
        *,
        set: SetValues = (),
        sweep: SweepValues | None = None,
        add: Any = None,
        scale: str | None = None,
        deadline_s: float | None = None,
        oom_risk: float | None = None,
        **flags: Any,
    ) -> Job[WhatIfs]:
        """Submit a question without waiting; arguments as of :meth:`what_if`."""
        if isinstance(plan, PlanHandle) and oom_risk is None:
            oom_risk = plan.risk
        limits = {"deadline_s": deadline_s, "oom_risk": oom_risk}
        question = what_if_body(set, sweep, add, scale)
        body = {"plan": plan_document(plan), **question, **limits, **_priced_as(plan, flags)}
        return self._submit("what-if", without_none(body), self._reader.what_ifs)

    def import_plan(
        self,
        path: str | Path,
        cluster: Any = None,
        *,
        framework: str | None = None,
        model: Any = None,
        oom_risk: float | None = None,
        **flags: Any,
    ) -> SimulationHandle:
        """Read a framework's configuration, as :func:`shardwright.import_plan` does.

        The file is read here, and no other that it names.
        """
        body = file_request(path, cluster, model, flags, framework=framework, oom_risk=oom_risk)
        document = self._transport.post("/v1/imports", body)
        return self._reader.simulation(document, pricing_words(document), oom_risk)

    def diagnose(
        self,
        path: str | Path,
        cluster: Any = None,
        *,
        config: str | Path | None = None,
        framework: str | None = None,
        model: Any = None,
        measured_step_s: float | None = None,
        tokens_per_s: float | None = None,
        trace: str | Path | None = None,
        oom_risk: float | None = None,
        **flags: Any,
    ) -> ServiceDiagnosis:
        """Explain a measured run, as :func:`shardwright.diagnose` does.

        The files are read here, each of at most 1 MiB, and no other that they name.
        """
        more = {"framework": framework, "measured_step_s": measured_step_s,
                "tokens_per_s": tokens_per_s, "oom_risk": oom_risk,
                "config": None if config is None else text_file(config),
                "trace": None if trace is None else trace_document(trace)}  # fmt: skip
        body = file_request(path, cluster, model, flags, **more)
        return ServiceDiagnosis(document=self._transport.post("/v1/diagnoses", body))

    def size(self, model: Any, tokens: str | float, **arguments: Any) -> ServiceSize:
        """Size a training, or price fine-tunings, as :func:`shardwright.size` does."""
        return self.submit_size(model, tokens, **arguments).wait()

    def submit_size(
        self,
        model: Any,
        tokens: str | float,
        *,
        cluster: Any = None,
        device: str | None = None,
        within: str | float | None = None,
        budget: float | None = None,
        prices: Any = None,
        epochs: float | None = None,
        deadline_s: float | None = None,
        **flags: Any,
    ) -> Job[ServiceSize]:
        """Submit a size without waiting; arguments as of :meth:`size`."""
        limits = {"device": device, "within": within, "budget": budget, "epochs": epochs,
                  "prices": prices, "deadline_s": deadline_s}  # fmt: skip
        body = size_request(model, tokens, cluster, flags, **limits)
        return self._submit("size", body, self._reader.size)

    def execute(self, plan: Any, steps: int = 20, **arguments: Any) -> RunResult:
        """Run a plan on the service's machine.

        The service must have been started with ``--allow-execute``.

        Args:
            plan: a handle, a Plan or the path of a plan file.
            steps: optimizer step to reach.
            arguments: ``deadline_s``.

        Raises:
            InputError: the plan cannot run there, or the service runs none.
            RunError: the run failed.
        """
        return self.submit_execute(plan, steps, **arguments).wait()

    def submit_execute(
        self, plan: Any, steps: int = 20, *, deadline_s: float | None = None
    ) -> Job[RunResult]:
        """Submit a run without waiting; arguments as of :meth:`execute`."""
        source = plan.to_dict() if isinstance(plan, PlanHandle) else plan
        body = {"plan": plan_document(source), "steps": steps, "deadline_s": deadline_s}
        try:
            return self._submit("run", without_none(body), self._reader.run)
        except InputError as error:
            if error.field != "job":
                raise
            allowed = "a service that was started with plan serve --allow-execute"
            raise InputError("execute", self._transport.url, allowed) from None

    def _submit(self, kind: JobKind, body: Mapping[str, Any], read: Any) -> Job[Any]:
        new = self._transport.post(PATHS[kind], body, key=secrets.token_hex(16))
        return Job(self._transport, kind, new, read, body)

    def job(self, job_id: Any, kind: JobKind = "plan") -> Job[Any]:
        """The job with this id.

        Raises:
            InputError: there is none, or it belongs to another token.
        """
        if kind not in PATHS:
            raise InputError("kind", kind, ", ".join(PATHS), nearest_name(str(kind), PATHS))
        if not (isinstance(job_id, str) and job_id.isalnum() and job_id.isascii()):
            raise InputError("job_id", job_id, "the id of a job")
        document = self._transport.get(f"{PATHS[kind]}/{job_id}")
        return Job(self._transport, kind, document, self._reader.reader_of(kind))

    def jobs(self, kind: JobKind = "plan", most: int = 100) -> Iterator[Job[Any]]:
        """This token's jobs, newest first.

        Args:
            kind: plan, what-if, size or run.
            most: limit of the list.
        """
        if kind not in PATHS:
            raise InputError("kind", kind, ", ".join(PATHS), nearest_name(str(kind), PATHS))
        query: dict[str, Any] = {"limit": min(most, 100)}
        left = most
        while left > 0:
            page = self._transport.get(PATHS[kind], query)
            for item in page["items"][:left]:
                yield Job(self._transport, kind, item, self._reader.reader_of(kind))
            left -= len(page["items"])
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]

    def models(self, name: str | None = None) -> dict[str, Any]:
        """Named models, or one of them, as ``plan models --json`` writes them."""
        path = "/v1/models" if name is None else f"/v1/models/{quote(name, safe='')}"
        document: dict[str, Any] = self._transport.get(path)
        return document

    def clusters(self) -> dict[str, Any]:
        """Named devices, nodes and fabrics, as ``plan clusters --json`` writes."""
        document: dict[str, Any] = self._transport.get("/v1/clusters")
        return document


def _priced_as(plan: Any, flags: dict[str, Any]) -> dict[str, Any]:
    pricing_flags = checked_flags(flags, PRICING_FLAGS)
    if isinstance(plan, PlanHandle):
        pricing = getattr(plan, "pricing", None)
        if pricing is not None:
            return {**pricing, **pricing_flags}
        inputs = handle_inputs(plan, Inputs(**pricing_flags))
        pricing_flags = {name: getattr(inputs, name) for name in PRICING_FLAGS}
    return {name: value for name, value in pricing_flags.items() if value is not None}
