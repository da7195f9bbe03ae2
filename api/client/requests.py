"""Arguments of client functions as request bodies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.codec import parse_json
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..notebook.plan_handle import PlanHandle
from ..problem.model_and_cluster import check_plan
from ..problem.names import unknown_argument
from ..problem.pins import pin_texts
from ..problem.plan_files import plan_text, read_plan
from ..problem.report_pricing import carried, report_pricing
from .bodies import (
    STRATEGY_FIELDS,
    WORKLOAD_FIELDS,
    prices_body,
    problem_body,
    without_none,
)

PRICING_FLAGS = ("stack", "attention", "overlap", "calibration")
MEMORY_FLAGS = ("memory_gib", "host_gib", "nvme_gib")
CONSTRAINT_FLAGS = (*MEMORY_FLAGS, "oom_risk", "top", "allow", "executable")
PLAN_FLAGS = (
    *(name for name in WORKLOAD_FIELDS if name != "task"),
    *CONSTRAINT_FLAGS,
    *("stack", "calibration", "objective", "prices", "tokens", "prefer", "pins"),
    "deadline_s",
    "for_",
)
COST_FLAGS = ("prices", "tokens")
SIMULATION_FLAGS = (*COST_FLAGS, *WORKLOAD_FIELDS, *STRATEGY_FIELDS, *PRICING_FLAGS, *MEMORY_FLAGS)
LOCAL_ONLY_FLAGS = ("galvatron_profile", "costs")
"""Arguments that only a search on this machine takes: they name files."""


def checked_flags(flags: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Check that every flag is known.

    Raises:
        InputError: the first unknown one.
    """
    for name in flags:
        if name in LOCAL_ONLY_FLAGS:
            raise InputError(name, flags[name], "sw.plan, without a service: it reads files here")
        if name not in names:
            if "cluster" not in names and name in SIMULATION_FLAGS:
                raise InputError(name, flags[name], "nothing beside a plan, which decides it")
            raise unknown_argument(name, names, flags[name])
    return dict(flags)


def plan_request(
    model: Any, cluster: Any, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], float | None]:
    """Build a search's body, its pricing and its accepted risk.

    Raises:
        InputError: an unknown argument, or a file that cannot be read.
    """
    request_flags = checked_flags(arguments, ("model", "cluster", *PLAN_FLAGS))
    limits = {name: request_flags.get(name) for name in CONSTRAINT_FLAGS}
    limits["executable"] = limits["executable"] or None
    limits["framework"] = request_flags.get("for_")
    limits["pins"] = list(pin_texts(request_flags.get("pins", ()), "pins")) or None
    body = {
        **problem_body(model, cluster, request_flags),
        **{
            name: request_flags.get(name)
            for name in ("stack", "calibration", "objective", "prefer", "tokens")
        },
        "prices": prices_body(request_flags.get("prices")),
        "constraints": limits,
        "deadline_s": request_flags.get("deadline_s"),
    }
    pricing = {
        name: request_flags[name] for name in PRICING_FLAGS if request_flags.get(name) is not None
    }
    return without_none(body), pricing, request_flags.get("oom_risk")


def simulation_request(
    plan_or_model: Any, cluster: Any, oom_risk: float | None, flags: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body of a simulation, and the pricing of its plan.

    Raises:
        InputError: an unknown argument, or a file that cannot be read.
    """
    plan = None if cluster is not None else plan_document_or_none(plan_or_model)
    if plan is not None:
        checked = checked_flags(flags, (*PRICING_FLAGS, *COST_FLAGS))
        body: dict[str, Any] = {"plan": plan}
    else:
        checked = checked_flags(flags, ("plan_or_model", "cluster", *SIMULATION_FLAGS))
        body = problem_body(plan_or_model, cluster, checked)
        body["strategy"] = {name: checked.get(name) for name in STRATEGY_FIELDS}
        body |= {name: checked.get(name) for name in MEMORY_FLAGS}
    body |= {"prices": prices_body(checked.get("prices")), "tokens": checked.get("tokens")}
    given = {name: checked[name] for name in PRICING_FLAGS if checked.get(name)}
    pricing = pricing_words(plan) | given
    return without_none({**body, **pricing, "oom_risk": oom_risk}), pricing


def pricing_words(document: Any) -> dict[str, str]:
    """Stack and calibration that a report names, as flags; none of a plan alone."""
    before = report_pricing(document)
    words = {name: getattr(before, name) for name in PRICING_FLAGS}
    return {name: word for name, word in words.items() if word is not None}


def plan_document_or_none(source: Any) -> dict[str, Any] | None:
    """Return a plan's document, with its report's pricing if any; None for a model."""
    if isinstance(source, PlanHandle):
        source = source.plan
    if isinstance(source, Plan):
        return dict(check_plan(source, "plan").to_document())
    if isinstance(source, Path) or (isinstance(source, str) and source.endswith(".json")):
        read_plan(str(source))
        return carried(parse_json(plan_text(str(source)), str(source)))
    if isinstance(source, Mapping) and {"programs", "plan"} & set(source):
        return carried(source)
    return None


def plan_document(source: Any) -> dict[str, Any]:
    """The document of a plan.

    Raises:
        InputError: it is not a plan.
    """
    document = plan_document_or_none(source)
    if document is None:
        raise InputError("plan", source, "a PlanHandle, a Plan or the path of a .json file")
    return document
