"""Frameworks' files where a verb takes a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....spec.errors import InputError
from ..flags import typed_inputs

if TYPE_CHECKING:
    from ...frameworks.import_plan import ImportedPlan
    from ...problem.report_pricing import PlanDocument

BESIDE = ("source", "model", "cluster", "global_batch", "seq_len")
"""Flags that say what a framework's file leaves out."""
SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".py", ".args")


def is_framework_file(path: str, source: str | None) -> bool:
    """True if a file is a framework's by its keys, its suffix or ``--from``."""
    if source is not None:
        return True
    suffix = Path(path).suffix.casefold()
    if suffix not in SUFFIXES or not Path(path).expanduser().is_file():
        return False
    return suffix != ".json" or _has_known_keys(path)


def _has_known_keys(path: str) -> bool:
    from ...frameworks.framework_file import read_framework_file
    from ...frameworks.shipped import kinds_of

    try:
        return bool(kinds_of(read_framework_file(path)))
    except InputError:  # the reader of plans says what is wrong with it
        return False


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
