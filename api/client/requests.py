"""What a client asks: the arguments of a function, checked for their names, as a body."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...spec.errors import InputError, nearest_name
from ...spec.plan.plan import Plan
from ..notebook.plan_handle import PlanHandle
from ..problem.model_and_cluster import check_plan
from ..problem.plan_files import read_plan
from .bodies import STRATEGY, WORKLOAD, pins_body, prices_body, question_body, without_none

PRICING = ("stack", "attention", "overlap", "calibration")
SIZES = ("memory_gib", "host_gib")
LIMITS = (*SIZES, "oom_risk", "top", "allow", "executable")
SEARCH = (
    *(name for name in WORKLOAD if name != "task"),
    *LIMITS,
    *("stack", "calibration", "objective", "prices", "prefer", "pins", "deadline_s"),
)
SIMULATED = (*WORKLOAD, *STRATEGY, *PRICING, *SIZES)
HERE = ("galvatron_profile", "costs")
"""Arguments that only a search on this machine takes: they name files."""


def checked_flags(flags: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The flags, refused where one is unknown.

    Raises:
        InputError: the first unknown one.
    """
    for name in flags:
        if name in HERE:
            raise InputError(name, flags[name], "sw.plan, without a service: it reads files here")
        if name not in known:
            allowed = "one of " + ", ".join(known)
            raise InputError(name, "an unknown argument", allowed, nearest_name(name, known))
    return dict(flags)


def plan_request(
    model: Any, cluster: Any, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], float | None]:
    """The body of a search, what prices its answer again, and its accepted risk.

    Raises:
        InputError: an unknown argument, or a file that cannot be read.
    """
    asked = checked_flags(given, SEARCH)
    limits = {name: asked.get(name) for name in LIMITS}
    limits["executable"] = limits["executable"] or None
    limits["pins"] = pins_body(asked.get("pins", ()))
    body = {
        **question_body(model, cluster, asked),
        **{name: asked.get(name) for name in ("stack", "calibration", "objective", "prefer")},
        "prices": prices_body(asked.get("prices")),
        "constraints": limits,
        "deadline_s": asked.get("deadline_s"),
    }
    pricing = {name: asked[name] for name in PRICING if asked.get(name) is not None}
    return without_none(body), pricing, asked.get("oom_risk")


def simulation_request(
    plan_or_model: Any, cluster: Any, oom_risk: float | None, flags: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body of a simulation, and what prices its plan again.

    Raises:
        InputError: an unknown argument, or a file that cannot be read.
    """
    known = None if cluster is not None else known_plan(plan_or_model)
    if known is not None:
        asked = checked_flags(flags, PRICING)
        body: dict[str, Any] = {"plan": known}
    else:
        asked = checked_flags(flags, SIMULATED)
        body = question_body(plan_or_model, cluster, asked)
        body["strategy"] = {name: asked.get(name) for name in STRATEGY}
        body |= {name: asked.get(name) for name in SIZES}
    pricing = {name: asked[name] for name in PRICING if asked.get(name) is not None}
    return without_none({**body, **pricing, "oom_risk": oom_risk}), pricing


def known_plan(given: Any) -> dict[str, Any] | None:
    """The document of a plan that was given; None if it is no plan but perhaps a model."""
    if isinstance(given, PlanHandle):
        given = given.plan
    if isinstance(given, Plan):
        return dict(check_plan(given, "plan").to_document())
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".json")):
        return dict(read_plan(str(given)).to_document())
    if isinstance(given, Mapping) and {"programs", "plan"} & set(given):
        return dict(given.get("plan", given))
    return None


def plan_document(given: Any) -> dict[str, Any]:
    """The document of a plan.

    Raises:
        InputError: it is none.
    """
    found = known_plan(given)
    if found is None:
        raise InputError("plan", given, "a PlanHandle, a Plan or the path of a .json file")
    return found
