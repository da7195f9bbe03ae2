"""Frameworks' files where a verb takes a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ...frameworks.plan_sources import BESIDE, is_framework_file
from ..flags import typed_inputs

if TYPE_CHECKING:
    from ...frameworks.import_plan import ImportedPlan
    from ...problem.report_pricing import PlanDocument

def imported_file(path: str, flags: dict[str, Any]) -> ImportedPlan:
    """The plan of a framework's file and the flags beside it.

    Raises:
        InputError: no readable file of a framework, or flags that it decides.
    """
    from ...frameworks.import_plan import import_plan
    from ...planning.uniform_plan import strategy_flags
    from ...problem.resolve import Inputs

    strategy = {name: flags.get(name) for name in strategy_flags()}
    return import_plan(path, flags.get("source"), Inputs(**typed_inputs(flags)), strategy)


def plan_document(path: str, flags: dict[str, Any]) -> PlanDocument:
    """A plan with its pricing, from a plan's file or a framework's.

    Raises:
        InputError: no usable file, or flags that it decides.
    """
    from ...problem.report_pricing import PlanDocument, ReportPricing, read_document

    if not is_framework_file(path, flags.get("source")):
        refuse_beside_plans((path,), flags)
        return read_document(path)
    read = imported_file(path, flags)
    stack = read.problem.stack
    pricing = ReportPricing(stack=stack.name, attention=stack.attention)
    return PlanDocument(plan=read.plan, pricing=pricing)


def refuse_beside_plans(paths: tuple[str, ...], flags: dict[str, Any]) -> None:
    """Refuse flags for frameworks' files where all files are plans.

    Raises:
        InputError: for the first such flag.
    """
    if any(is_framework_file(path, flags.get("source")) for path in paths):
        return
    for name in BESIDE:
        if flags.get(name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(flag, flags[name], f"nothing beside {paths[0]}, which decides it")
