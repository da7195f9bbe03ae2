"""One request to one answer: what the children compute. Nothing here reads a path it was sent."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from ...datasets.catalogue.models import presets
from ...spec.codec import parse_json
from ...spec.errors import (
    InfeasibleError,
    InputError,
    NotBuiltError,
    ShardwrightError,
    nearest_name,
)
from ...spec.report import Report
from ..inputs import Inputs, plan_pricing, resolve
from ..nouns import ClusterLike, ModelLike
from ..pinning import resolve_pins
from ..plans import plan_from_text
from ..reports import memory_rule, search_plan, simulate_plan
from ..uniform import UniformStrategy, uniform_plan
from ..what_if_document import what_if_document
from ..what_if_inputs import question_of
from ..what_ifs import equal_parts, what_if
from .problems import INFEASIBLE, INVALID, MAX_ERRORS, NOT_BUILT, TOO_LARGE, encode, problem
from .requests import (
    PLAN_ADAPTER,
    SIMULATION_ADAPTER,
    WHAT_IF_ADAPTER,
    PlanBody,
    PricesBody,
    SimulationBody,
    WhatIfBody,
    WorkloadBody,
)

CLUSTER_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9@:.=+_-]*", re.ASCII)
FILE_SUFFIXES = (".json", ".yaml", ".yml")
Answer = tuple[int, bytes]
POINTERS = {
    "global_batch": "/workload/global_batch",
    "global_batch_tokens": "/workload/global_batch_tokens",
    "seq_len": "/workload/seq_len",
    "dtype": "/workload/dtype",
    "optimizer": "/workload/optimizer",
    "trainable": "/workload/trainable",
    "task": "/workload/task",
    "memory_gib": "/constraints/memory_gib",
    "host_gib": "/constraints/host_gib",
    "oom_risk": "/constraints/oom_risk",
    "pin": "/constraints/pins",
}
STRATEGY_FLAGS = tuple(UniformStrategy.__dataclass_fields__)
WITHIN = 0.8
"""Share of the time to answer in that searches get: the rest is for simulating and writing."""


def answer(operation: str, body: bytes, limit_s: float) -> Answer:
    """Status and JSON body for a request; every failure is a problem, none is raised.

    Args:
        operation: ``plan``, ``simulation`` or ``what-if``.
        body: as it was sent.
        limit_s: seconds in which to answer.
    """
    start_s = time.monotonic()
    try:
        parse_json(body, "body")  # refuses repeated keys and numbers that are not finite
        if operation == "plan":
            found = _plan(PLAN_ADAPTER.validate_json(body), start_s + limit_s).to_document()
        elif operation == "what-if":
            found = _what_if(WHAT_IF_ADAPTER.validate_json(body), start_s + limit_s)
        else:
            found = _simulation(SIMULATION_ADAPTER.validate_json(body)).to_document()
        return 200, encode(found)
    except ShardwrightError as error:
        return 422, encode(_refusal(error))
    except ValidationError as error:
        return 422, encode(_faults(error))
    except (MemoryError, RecursionError):
        detail = "the request needs more memory or depth than one request may use"
        return 422, encode(problem(422, detail, TOO_LARGE))
    except Exception as error:  # a fault of ours must cost this request only
        return 500, encode(problem(500, f"{type(error).__name__}; please report it"))


def _faults(error: ValidationError) -> dict[str, Any]:
    """What is wrong with the body's shape, without what it held."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    faults = [{"pointer": _pointer(item["loc"]), "msg": item["msg"]} for item in found[:MAX_ERRORS]]
    return problem(422, f"{len(found)} faults in the body; see errors", INVALID, faults)


def _pointer(location: tuple[Any, ...]) -> str:
    """A JSON pointer; the names that the validator gives to union members are left out."""
    kept = [str(p) for p in location if not re.fullmatch(r"constrained-str|dict\[.*\]", str(p))]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in kept)


def _refusal(error: ShardwrightError) -> dict[str, Any]:
    if isinstance(error, InputError):
        near = "" if error.nearest in (None, "") else f"; nearest: {error.nearest}"
        pointer = _error_pointer(error.field)
        message = f"allowed: {error.allowed}{near}"
        faults = [{"pointer": pointer, "msg": message}]
        return problem(422, f"{pointer or 'body'}: {message}", INVALID, faults)
    kind = INFEASIBLE if isinstance(error, InfeasibleError) else NOT_BUILT
    return problem(422, str(error), kind)


def _error_pointer(field: str) -> str:
    """Where a field of an error lies in the body: flags, or ``WHERE: dotted.path``."""
    flag, _, key = field.partition(" ")
    if flag in ("--set", "--sweep") and key:
        return f"/{flag.removeprefix('--')}/{key}"
    head, _, path = field.partition(": ")
    name = head.removeprefix("--").split(" ")[0].replace("-", "_")
    parts = [part for part in path.split(".") if part and " " not in part]
    if field.startswith("--") or name in ("model", "cluster", "plan", "prices"):
        start = POINTERS.get(name) or ("/strategy/" if name in STRATEGY_FLAGS else "/") + name
        return start + "".join(f"/{part}" for part in parts)
    return "".join(f"/{part}" for part in parts)


def _plan(body: PlanBody, deadline_s: float) -> Report:
    limits = body.constraints
    problem_ = resolve(
        Inputs(
            **_nouns(body.model, body.cluster, body.workload),
            stack=body.stack,
            calibration=body.calibration,
            memory_gib=None if limits is None else limits.memory_gib,
            host_gib=None if limits is None else limits.host_gib,
            objective=body.objective,
            prices=None if body.prices is None else _prices(body.prices),
        )
    )
    pins = resolve_pins((limits and limits.pins) or (), problem_)
    left_s = deadline_s - time.monotonic()
    if body.deadline_s is not None:
        left_s = min(left_s, body.deadline_s)
    return search_plan(
        problem_,
        pins,
        top=3 if limits is None or limits.top is None else limits.top,
        deadline_s=max(0.0, left_s),
        risk=memory_rule(limits.oom_risk if limits else None).risk,
        prefer=body.prefer or "best",
    )


def _prices(body: PricesBody) -> dict[str, Any]:
    """The content of a price file; what was left out is not there."""
    return {name: value for name, value in asdict(body).items() if value is not None}


def _simulation(body: SimulationBody) -> Report:
    risk = memory_rule(body.oom_risk).risk
    how: dict[str, Any] = {
        "stack": body.stack,
        "attention": body.attention,
        "overlap": body.overlap,
        "calibration": body.calibration,
    }
    if body.plan is not None:
        for name in ("model", "cluster", "workload", "strategy"):
            if getattr(body, name) is not None:
                raise InputError(f"--{name}", "a value", "nothing beside plan, which decides it")
        plan = plan_from_text(encode(body.plan), "plan")
        stack, measured, notes = plan_pricing(plan, Inputs(**how))
        return simulate_plan(plan, stack, measured, notes, risk).report
    if body.model is None or body.cluster is None or body.workload is None:
        missing = next(n for n in ("model", "cluster", "workload") if getattr(body, n) is None)
        raise InputError(f"--{missing}", "nothing", "a value, or a plan instead")
    problem_ = resolve(Inputs(**_nouns(body.model, body.cluster, body.workload), **how))
    flags = UniformStrategy(**({} if body.strategy is None else asdict(body.strategy)))
    made, notes = uniform_plan(problem_, flags)
    every = problem_.assumptions + notes
    return simulate_plan(made, problem_.stack, problem_.measured, every, risk).report


def _what_if(body: WhatIfBody, ends_s: float) -> dict[str, Any]:
    """The answer to a question, its searches cut short so that all are done in time."""
    if body.plan_id is not None:
        raise NotBuiltError("plan_id", "send the plan itself as plan")
    if body.plan is None:
        raise InputError("plan", "nothing", "a plan, such as POST /v1/plans answers with")
    question = question_of(
        {} if body.set is None else body.set,
        body.sweep,
        None if body.add is None else _cluster(body.add, "--add"),
        body.scale,
    )
    inputs = Inputs(
        stack=body.stack,
        attention=body.attention,
        overlap=body.overlap,
        calibration=body.calibration,
    )
    plan = plan_from_text(encode(body.plan), "plan")
    left_s = max(0.0, ends_s - time.monotonic())
    if body.deadline_s is not None:
        left_s = min(left_s, body.deadline_s)
    clock = equal_parts(WITHIN * left_s)
    found = what_if(plan, question, inputs, memory_rule(body.oom_risk).risk, clock)
    return what_if_document(found)


def _nouns(
    model: str | dict[str, Any], cluster: str | dict[str, Any], workload: WorkloadBody
) -> dict[str, Any]:
    """Model, cluster and workload as inputs; a text names nothing in the file system."""
    return {"model": _model(model), "cluster": _cluster(cluster), **asdict(workload)}


def _model(given: str | Mapping[str, Any]) -> ModelLike:
    if not isinstance(given, str):
        return given
    names = {name.casefold(): name for name in presets()}
    known = names.get(given.strip().casefold())
    if known is None:
        allowed = "a preset (GET /v1/models lists them), typed keys or a config.json's content"
        raise InputError("model", given, allowed, nearest_name(given[:100], names.values()))
    return known


def _cluster(given: str | Mapping[str, Any], where: str = "cluster") -> ClusterLike:
    if not isinstance(given, str):
        return given
    text = given.strip()
    if not CLUSTER_TEXT.fullmatch(text) or text.casefold().endswith(FILE_SUFFIXES):
        allowed = "NODESxDEVICESxTYPE[@FABRIC], NxTYPE[@FABRIC], local[:N], or typed keys"
        raise InputError(where, given, allowed, "8x8xH100-80GB@8x400G-IB")
    return text
