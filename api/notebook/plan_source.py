"""Plans as Python takes them: handles, documents, files, with their pricing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ..frameworks.plan_sources import is_framework_file
from ..planning.report import memory_rule
from ..problem.model_and_cluster import check_plan
from ..problem.report_pricing import PlanDocument, document_from_text, read_document
from ..problem.resolve import Inputs
from .import_plan import import_plan
from .plan_handle import PlanHandle
from .what_if_handle import handle_inputs

PlanLike = PlanHandle | Plan | Mapping[str, Any] | str | Path
PRICING_FLAGS = ("stack", "attention", "overlap", "calibration")
FILE_WORDS = ("framework", "model", "cluster", "global_batch", "seq_len")
PLAN_TEXT = "a PlanHandle, a Plan, or the path of a .json file or of a framework's file"


def pricing_words(*words: str | None) -> dict[str, str]:
    """Arguments that price a plan, in the order of ``PRICING_FLAGS``, without those left out."""
    named = zip(PRICING_FLAGS, words, strict=True)
    return {name: word for name, word in named if word is not None}


def file_words(*words: Any) -> dict[str, Any]:
    """Values that a framework's file leaves out, in the order of ``FILE_WORDS``, without None."""
    named = zip(FILE_WORDS, words, strict=True)
    return {name: word for name, word in named if word is not None}


def is_plan(source: Any) -> bool:
    """True for a plan, its document or file, and False for a model."""
    if isinstance(source, Mapping):
        return bool({"programs", "plan"} & set(source))
    is_file = isinstance(source, Path) or (isinstance(source, str) and source.endswith(".json"))
    return is_file or isinstance(source, (PlanHandle, Plan))


def document_of(source: Any) -> PlanDocument:
    """A plan with its report's pricing, where it comes with one.

    Raises:
        InputError: it is not a plan.
    """
    if not is_plan(source):
        raise InputError("plan", source, PLAN_TEXT)
    if isinstance(source, Plan):
        return PlanDocument(plan=check_plan(source, "plan"))
    if isinstance(source, Mapping):
        return document_from_text(json.dumps(source), "plan")
    return read_document(str(source))


def with_imports(
    sources: Sequence[Any], beside: Mapping[str, Any], pricing: Mapping[str, Any]
) -> list[Any]:
    """Sources of plans, of which frameworks' files are read and priced.

    Args:
        sources: as a person gives them.
        beside: what such a file leaves out, of ``FILE_WORDS``.
        pricing: words that price a plan.

    Raises:
        InputError: a file that cannot be read, or something beside plans that decide it.
    """
    framework = beside.get("framework")
    are_files = [
        isinstance(source, (str, Path)) and is_framework_file(str(source), framework)
        for source in sources
    ]
    if not any(are_files):
        for name, value in beside.items():
            raise InputError(name, value, "nothing beside a plan, which decides it")
    return [
        import_plan(source, **beside, **pricing) if is_file else source
        for source, is_file in zip(sources, are_files, strict=True)
    ]


def priced(
    source: Any, flags: Mapping[str, Any], oom_risk: float | None
) -> tuple[Plan, Inputs, float]:
    """The plan, and flags and risk completed by what it was priced with before."""
    inputs = Inputs(**flags)
    risk = memory_rule(oom_risk).risk
    if isinstance(source, PlanHandle):
        risk = source.risk if oom_risk is None else risk
        return source.plan, handle_inputs(source, inputs), risk
    given = document_of(source)
    return given.plan, given.inputs(inputs), memory_rule(given.risk(oom_risk)).risk
