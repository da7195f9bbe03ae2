"""Timelines, views, comparisons and files of stored answers.

Routes pass stored answers, each with its question's body and the calibration lent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....costmodel.explain.hidden_collectives import LayerOverlap, layer_overlaps
from ....costmodel.memory.feasibility import MemoryRule
from ....costmodel.pricing.version import PRICING_VERSION
from ....costmodel.simulation.timeline import simulated_timeline
from ....planner.what_if.setting import group_names, level_names
from ....spec.codec import dump_pretty, from_document
from ....spec.errors import InputError
from ....spec.inputs.what_if_keys import entry_of, known_paths
from ....spec.plan.plan import Plan
from ....spec.report.report import Report
from ....spec.techniques import TECHNIQUES
from ...html.page_file import page_file
from ...html.plan_drawing import plan_drawing
from ...html.svg import drawing_svg
from ...planning.report import Simulated, memory_rule, plan_simulator, simulate_plan
from ...problem.plan_files import plan_from_text
from ...problem.report_pricing import download_document
from ...problem.resolve import Inputs, plan_pricing
from ...problem.stored_calibrations import lending
from ...views.comparison import Comparison, ComparisonSide
from ...views.comparison_view import comparison_view
from ...views.overlap_table import may_overlap
from ...views.report_view import report_view, step_trace
from ..problems import encode
from .lending import lent_from

SIDE_NAMES = ("first", "second")


def _require_current(*answers: Any) -> None:
    """Refuse to set an answer of other prices beside this version's.

    Raises:
        InputError: one that an earlier version of the pricing made.
    """
    for answer in answers:
        made = answer["report"]["provenance"]["versions"].get("pricing", "1")
        if made != str(PRICING_VERSION):
            allowed = f"an answer of version {PRICING_VERSION} of the pricing; ask again for one"
            raise InputError("plan", f"one of version {made} of the pricing", allowed)


def _simulated(stored: Any) -> Simulated:
    _require_current(stored)
    plan = plan_from_text(encode(stored["report"]["plan"]), "plan")
    stack, measured, notes = _pricing(stored, plan)
    return simulate_plan(plan, stack, measured, notes)


def _pricing(stored: Any, plan: Plan) -> Any:
    question = stored["asked"]
    inputs = Inputs(stack=question.get("stack"), calibration=question.get("calibration"))
    with lending(lent_from(stored["lent"])):
        return plan_pricing(plan, inputs)


def _report(stored: Any) -> Report:
    kept = {name: value for name, value in stored["report"].items() if name != "plan_hash"}
    return from_document(Report, kept, "plan", {"techniques": TECHNIQUES})


def _rule(stored: Any, plan: Plan) -> MemoryRule:
    """The rule that judged the memory of an answer's plans.

    A calibration deleted since leaves the shipped rule: all else of a report is stored.
    """
    limits = stored["asked"].get("constraints") or {}
    rule = memory_rule(limits.get("oom_risk"))
    try:
        _, measured, _ = _pricing(stored, plan)
    except InputError:
        return rule
    return rule.measured_by(measured)


def _traced(stored: Any) -> bytes:
    simulated = _simulated(stored)
    return simulated_timeline(simulated.simulation, simulated.simulator).to_perfetto().encode()


def _viewed(stored: Any) -> bytes:
    report = _report(stored)
    keys = [
        {"path": path, "kind": entry_of(path).kind, "meaning": entry_of(path).meaning}
        for path in _paths(report.plan)
    ]
    view = report_view(report, _rule(stored, report.plan), _overlaps(stored, report.plan))
    return encode({**view, "keys": keys})


def _overlaps(stored: Any, plan: Plan) -> list[LayerOverlap]:
    """Exposed collectives of its layers; nothing is said of what cannot be priced again."""
    if not may_overlap(plan):
        return []
    try:
        _require_current(stored)
        stack, measured, _ = _pricing(stored, plan)
    except InputError:
        return []
    return layer_overlaps(plan, plan_simulator(plan, stack, measured))


def _paths(plan: Plan) -> list[str]:
    return known_paths(level_names(plan.cluster), group_names(plan.cluster))


def _compared(stored: Any) -> bytes:
    pairs = zip(SIDE_NAMES, (stored["first"], stored["second"]), strict=True)
    _require_current(stored["first"], stored["second"])
    first, second = (ComparisonSide(name=name, report=_report(answer)) for name, answer in pairs)
    comparison = Comparison(first=first, second=second)
    return encode({**comparison.to_document(), "view": comparison_view(comparison)})


def _page(stored: Any) -> bytes:
    report = _report(stored)
    simulated = _simulated(stored)
    overlaps = layer_overlaps(report.plan, simulated.simulator)
    view = report_view(report, _rule(stored, report.plan), overlaps)
    plan = download_document(stored["report"])
    return page_file(view, plan, step_trace(simulated)).encode()


def _picture(stored: Any) -> bytes:
    return drawing_svg(plan_drawing(_report(stored))).encode()


def _plan(stored: Any) -> bytes:
    return dump_pretty(download_document(stored["report"])).encode()


STORED_OPERATIONS: Mapping[str, Callable[[Any], bytes]] = {
    "trace": _traced,
    "view": _viewed,
    "compare": _compared,
    "export-html": _page,
    "export-plan": _plan,
    "export-svg": _picture,
}
"""What is made of stored answers, by the name of the operation."""
