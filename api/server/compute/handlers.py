"""Handlers of request bodies: searches, simulations, what-ifs, checks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ....costmodel.simulation.timeline import simulated_timeline
from ....datasets.models.load import presets
from ....planner.solve.options import SolveOptions
from ....planner.solve.problem import Problem
from ....planner.space.pins import Pin
from ....planner.what_if.question import MOST_VALUES, Question
from ....spec.errors import InputError, nearest_name
from ....spec.inputs.preference import simple_within
from ....spec.inputs.token_count import token_count
from ....spec.plan.plan import Plan
from ....spec.report.report import Report
from ...frameworks.keep_to import kept_to, refuse_beside
from ...planning.report import Simulated, memory_rule, simulate_plan
from ...planning.solved_report import solved_report
from ...planning.training import TOKENS_FLAG, priced_report, trained_report
from ...planning.uniform_plan import UniformStrategy, uniform_plan
from ...problem.model_and_cluster import ClusterLike, ModelLike
from ...problem.pins import resolve_pins
from ...problem.plan_files import plan_from_text
from ...problem.price_file import prices_of
from ...problem.report_pricing import document_from_text, report_pricing
from ...problem.resolve import Inputs, plan_pricing, resolve
from ...views.explanation import explain_report
from ...what_if.document import what_if_document
from ...what_if.inputs import question_of
from ...what_if.what_if import check_question, split_deadline, what_if
from ..problems import encode
from .progress_events import EmitEvent, SearchProgress
from .requests import (
    DEADLINE_S,
    PlanBody,
    PricesBody,
    RunBody,
    SimulationBody,
    WhatIfBody,
    WorkloadBody,
)

CLUSTER_TEXT = re.compile(r"[A-Za-z0-9(][A-Za-z0-9@:.=+_()-]*", re.ASCII)
FILE_SUFFIXES = (".json", ".yaml", ".yml")
MEMORY_SIZES = ("memory_gib", "host_gib", "nvme_gib")
SEARCH_SHARE = 0.8
"""Share of the time to answer in that searches get: the rest is for simulating and writing."""
SWEEP_VALUE_S = 3.0
"""Of a sweep, for each value."""
CHECK_BUDGET_S = 1.5
"""Seconds in which the values of a long sweep are looked at before it becomes a job."""


def what_if_deadline(body: WhatIfBody) -> float:
    """Return a what-if's deadline, by body or by its sweep."""
    if body.deadline_s is not None:
        return body.deadline_s
    rows = max(map(len, body.sweep.values())) if body.sweep else 1
    return max(DEADLINE_S, SWEEP_VALUE_S * rows)


def checked_body(
    parsed: Any,
    deadline_s: float | None,
    plan_id: str | None,
    calibration: str | None = None,
    soon: bool = False,
) -> bytes:
    """Encode a checked body and the facts the service needs.

    ``soon``: its job is short, so that its answer is waited for unless the sender says otherwise.
    """
    facts = {"deadline_s": deadline_s, "plan_id": plan_id, "calibration": calibration, "soon": soon}
    return encode(facts) + b"\n" + encode(parsed)


def _question_of_plan(body: PlanBody) -> tuple[Problem, Problem | None, tuple[Pin, ...]]:
    """Resolve a body into a problem, the free one beside a framework's, and pins."""
    limits = body.constraints
    inputs = Inputs(
        **_problem_inputs(body.model, body.cluster, body.workload),
        stack=body.stack,
        calibration=body.calibration,
        memory_gib=None if limits is None else limits.memory_gib,
        host_gib=None if limits is None else limits.host_gib,
        nvme_gib=None if limits is None else limits.nvme_gib,
        objective=body.objective,
        prices=None if body.prices is None else body_prices(body.prices),
        allow=None if limits is None else limits.allow,
    )
    if limits is None or limits.framework is None:
        problem_, free = resolve(inputs), None
    else:
        refuse_beside(limits.framework, executable=_executable(body))
        problem_, free = kept_to(limits.framework, inputs)
    pins = resolve_pins((limits and limits.pins) or (), problem_, _executable(body))
    return problem_, free, pins


def _executable(body: PlanBody) -> bool:
    return bool(body.constraints and body.constraints.executable)


def check_plan_body(body: PlanBody) -> None:
    """Refuse a body that could not start a search."""
    _question_of_plan(body)
    simple_within(body.prefer)
    if body.tokens is not None:
        token_count(body.tokens, TOKENS_FLAG)


def handle_plan(body: PlanBody, ends_s: float, emit: EmitEvent | None) -> Report:
    """The best plan, or the best until ``ends_s`` (monotonic clock)."""
    limits = body.constraints
    problem_, free, pins = _question_of_plan(body)
    left_s = ends_s - time.monotonic()
    if body.deadline_s is not None:
        left_s = min(left_s, body.deadline_s)
    watch = None if emit is None else SearchProgress(emit, problem_.is_single_search)
    options = SolveOptions(
        pins=pins,
        top=3 if limits is None or limits.top is None else limits.top,
        deadline_s=max(0.0, left_s),
        risk=memory_rule(limits.oom_risk if limits else None).risk,
        executable=_executable(body),
        simple_within=simple_within(body.prefer),
        progress=None if watch is None else watch.progress,
        watch=watch,
    )
    return trained_report(solved_report(problem_, options, free), body.tokens)


def body_prices(body: PricesBody) -> dict[str, Any]:
    """Document of the prices that a body has."""
    return {name: value for name, value in asdict(body).items() if value is not None}


def handle_simulation(body: SimulationBody) -> dict[str, Any]:
    """Simulate the plan of a body, with the extras requested."""
    done, document = _with_cost(_simulate(body), body), {}
    extras = body.include or ()
    if "trace" in extras:
        document["trace"] = _trace_document(done)
    if "explain" not in extras:
        return {**done.report.to_document(), **document}
    explanation = explain_report(done.report, done.simulation, done.simulator)
    return {**explanation.to_document(), **document}


def _with_cost(done: Simulated, body: SimulationBody) -> Simulated:
    given = None if body.prices is None else body_prices(body.prices)
    report = priced_report(done.report, prices_of(given, done.report.plan.cluster))
    return replace(done, report=trained_report(report, body.tokens))


def _simulate(body: SimulationBody) -> Simulated:
    risk = memory_rule(body.oom_risk).risk
    how: dict[str, Any] = {
        "stack": body.stack,
        "attention": body.attention,
        "overlap": body.overlap,
        "calibration": body.calibration,
    }
    sizes: dict[str, Any] = {name: getattr(body, name) for name in MEMORY_SIZES}
    if body.plan is not None:
        for name in ("model", "cluster", "workload", "strategy", *sizes):
            if getattr(body, name) is not None:
                raise InputError(f"--{name}", "a value", "nothing beside plan, which decides it")
        given = document_from_text(encode(body.plan), "plan")
        stack, measured, notes = plan_pricing(given.plan, given.inputs(Inputs(**how)))
        risk = memory_rule(given.risk(body.oom_risk)).risk
        return simulate_plan(given.plan, stack, measured, notes, risk)
    if body.model is None or body.cluster is None or body.workload is None:
        missing = next(n for n in ("model", "cluster", "workload") if getattr(body, n) is None)
        raise InputError(f"--{missing}", "nothing", "a value, or a plan instead")
    nouns = _problem_inputs(body.model, body.cluster, body.workload)
    problem_ = resolve(Inputs(**nouns, **how, **sizes))
    flags = UniformStrategy.from_flags({} if body.strategy is None else asdict(body.strategy))
    made, notes = uniform_plan(problem_, flags)
    every = problem_.assumptions + notes
    return simulate_plan(made, problem_.stack, problem_.measured, every, risk)


def _trace_document(done: Simulated) -> dict[str, Any]:
    text = simulated_timeline(done.simulation, done.simulator).to_perfetto()
    trace: dict[str, Any] = json.loads(text)
    return trace


def _question(body: WhatIfBody) -> Question:
    return question_of(
        {} if body.set is None else body.set,
        body.sweep,
        None if body.add is None else body_cluster(body.add, "--add"),
        body.scale,
    )


def check_run_body(body: RunBody) -> None:
    """Refuse a run without a plan."""
    _require_one_plan(body)
    if body.plan is not None:
        plan_from_text(encode(body.plan), "plan")


def _require_one_plan(body: WhatIfBody | RunBody) -> None:
    if (body.plan is None) == (body.plan_id is None):
        allowed = "a plan, such as POST /v1/plans answers with, or the plan_id of one, not both"
        raise InputError("plan", "nothing" if body.plan is None else "both", allowed)


def check_what_if_body(body: WhatIfBody) -> None:
    """Check a what-if body before it becomes a job."""
    _require_one_plan(body)
    question = _question(body)
    if body.plan is None:
        return
    plan, inputs, risk = _what_if_plan(body)
    ends_s = time.monotonic() + CHECK_BUDGET_S
    for part in _short_sweeps(question):
        check_question(plan, part, inputs, risk)
        if time.monotonic() > ends_s:
            break


def _short_sweeps(question: Question) -> list[Question]:
    sweep = question.sweep
    if sweep is None:
        return [question]
    starts = range(0, len(sweep.values), MOST_VALUES)
    several = [sweep.values[start : start + MOST_VALUES] for start in starts]
    return [replace(question, sweep=replace(sweep, values=values)) for values in several]


def _what_if_plan(body: WhatIfBody) -> tuple[Plan, Inputs, float]:
    """The plan of a question, priced as the body says, else as its report."""
    flags = Inputs(
        stack=body.stack,
        attention=body.attention,
        overlap=body.overlap,
        calibration=body.calibration,
    )
    given = document_from_text(encode(body.plan), "plan")
    return given.plan, given.inputs(flags), memory_rule(given.risk(body.oom_risk)).risk


def named_calibration(body: WhatIfBody | RunBody) -> str | None:
    """The calibration that a body names, itself or in its plan's report."""
    return getattr(body, "calibration", None) or report_pricing(body.plan).calibration


def handle_what_if(body: WhatIfBody, ends_s: float) -> dict[str, Any]:
    """Answer a what-if, its searches within the deadline."""
    if body.plan is None:
        raise InputError("plan", "nothing", "a plan, such as POST /v1/plans answers with")
    question = _question(body)
    plan, inputs, risk = _what_if_plan(body)
    left_s = max(0.0, ends_s - time.monotonic())
    if body.deadline_s is not None:
        left_s = min(left_s, body.deadline_s)
    clock = split_deadline(SEARCH_SHARE * left_s)
    answer = what_if(plan, question, inputs, risk, clock)
    return what_if_document(answer)


def _problem_inputs(
    model: str | dict[str, Any], cluster: str | dict[str, Any], workload: WorkloadBody
) -> dict[str, Any]:
    return {"model": body_model(model), "cluster": body_cluster(cluster), **asdict(workload)}


def body_model(model: str | Mapping[str, Any]) -> ModelLike:
    """Model of a body, never a file.

    Raises:
        InputError: no preset of that name.
    """
    if not isinstance(model, str):
        return model
    names = {name.casefold(): name for name in presets()}
    preset = names.get(model.strip().casefold())
    if preset is None:
        allowed = "a preset (GET /v1/models lists them), typed keys or a config.json's content"
        raise InputError("model", model, allowed, nearest_name(model[:100], names.values()))
    return preset


def body_cluster(cluster: str | Mapping[str, Any], where: str = "cluster") -> ClusterLike:
    """Cluster of a body, never a file; ``where`` names it in errors.

    Raises:
        InputError: a text of another form.
    """
    if not isinstance(cluster, str):
        return cluster
    text = cluster.strip()
    if not CLUSTER_TEXT.fullmatch(text) or text.casefold().endswith(FILE_SUFFIXES):
        allowed = (
            "NODESxDEVICESxTYPE[@FABRIC], NxTYPE[@FABRIC], NxINSTANCE, A+B, 1x(A+B), local[:N], "
            "typed keys"
        )
        raise InputError(where, cluster, allowed, "8x8xH100-80GB@8x400G-IB")
    return text
