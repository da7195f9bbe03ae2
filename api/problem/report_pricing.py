"""Pricing of a document: its report's stack, calibration and risk, unless flags say otherwise.

A document carries a report where ``provenance`` stands beside ``plan``. What its ``assumptions`` do
not list was given; the rest, such as a stack's usual attention, is chosen anew where a question
changes the stack. A calibration is taken up by name and content, this machine's profile by
fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...costmodel.memory.feasibility import DEFAULT_RISK
from ...spec.cluster.measured import Measured, profile_of
from ...spec.cluster.stack_spec import StackSpec
from ...spec.codec import parse_json
from ...spec.errors import InputError
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Report
from .plan_files import plan_from_text, plan_text
from .resolve import Inputs, plan_pricing
from .stored_calibrations import CALIBRATION_FLAG, measured_name

STACK_TEXT = re.compile(r"(\S+) .+ \(attention (\w+), overlap ([\w+]+)\)")
CALIBRATION_TEXT = re.compile(r"(\S+) (sha256:\w{12})(?: on profile \S+)?")
PROFILE_TEXT = re.compile(r"profile (\S+)")
CARRIED_KEYS = ("plan", "provenance", "assumptions")
NOTHING_GIVEN = Inputs()
WORDS = ("stack", "attention", "overlap", "calibration")
RISK_PATH = "oom_risk"
RISK_WHY = "the accepted chance of running out of memory, as given"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPricing:
    """What a report was priced with; None where it was left to the rules.

    ``calibration`` may end in ``@`` and its hash; ``profile`` is the fingerprint of a machine's
    profile that priced it alone.
    """

    stack: str | None = None
    attention: str | None = None
    overlap: str | None = None
    calibration: str | None = None
    oom_risk: float | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """A plan with the pricing of the report around it."""

    plan: Plan
    pricing: ReportPricing = ReportPricing()

    def inputs(self, given: Inputs = NOTHING_GIVEN) -> Inputs:
        """Complete flags with the report's pricing.

        Raises:
            InputError: the report was priced by a profile that this machine does not have.
        """
        words = {name: getattr(given, name) or getattr(self.pricing, name) for name in WORDS}
        inputs = replace(given, **words)
        if self.pricing.profile is not None and inputs.calibration is None:
            self._require_profile(self.pricing.profile, inputs)
        return inputs

    def _require_profile(self, fingerprint: str, inputs: Inputs) -> None:
        profile = profile_of(plan_pricing(self.plan, inputs)[1])
        if profile is None or profile.fingerprint != fingerprint:
            here = "none is here" if profile is None else f"here is {profile.fingerprint}"
            allowed = f"a report priced by this machine's profile ({here}), or {CALIBRATION_FLAG}"
            field, nearest = "provenance.calibration", f"{CALIBRATION_FLAG} none"
            raise InputError(field, f"profile {fingerprint}", allowed, nearest)

    def risk(self, given: float | None) -> float | None:
        """The risk given, else the report's."""
        return self.pricing.oom_risk if given is None else given


def read_document(path: str) -> PlanDocument:
    """Read a plan and its report's pricing from a file.

    Raises:
        InputError: the file cannot be read, or holds no usable plan.
    """
    return document_from_text(plan_text(path), path)


def document_from_text(text: str | bytes, where: str) -> PlanDocument:
    """Read a plan and its report's pricing from JSON; ``where`` names it in errors."""
    plan = plan_from_text(text, where)
    return PlanDocument(plan=plan, pricing=report_pricing(parse_json(text, where)))


def report_pricing(document: Any) -> ReportPricing:
    """The pricing that a document's report names, if it carries one."""
    provenance = document.get("provenance") if isinstance(document, dict) else None
    if not isinstance(provenance, dict) or "plan" not in document:
        return ReportPricing()
    stack = STACK_TEXT.fullmatch(str(provenance.get("stack")))
    if stack is None:  # of other costs, such as Galvatron's
        return ReportPricing()
    assumed = _assumed(document.get("assumptions"))
    text = str(provenance.get("calibration"))
    named, profile = CALIBRATION_TEXT.fullmatch(text), PROFILE_TEXT.fullmatch(text)
    risk = assumed.get(RISK_PATH)
    return ReportPricing(
        stack=None if "stack" in assumed else stack[1],
        attention=None if "stack.attention" in assumed else stack[2],
        overlap=None if "stack.overlap" in assumed else stack[3],
        calibration=f"{named[1]}@{named[2]}" if named else "none" if text == "none" else None,
        oom_risk=risk if isinstance(risk, float) else None,
        profile=profile[1] if profile else None,
    )


def _assumed(notes: Any) -> Mapping[str, Any]:
    pairs = notes if isinstance(notes, list) else []
    return {str(note.get("path")): note.get("value") for note in pairs if isinstance(note, dict)}


def run_pricing(
    document: PlanDocument,
) -> tuple[StackSpec, Measured | None, tuple[Assumption, ...]]:
    """Pricing of a run's prediction.

    Where the report's profile or calibration is not on this machine, its own is used, and named.
    """
    try:
        return plan_pricing(document.plan, document.inputs())
    except InputError as error:
        pricing = replace(document.pricing, calibration=None, profile=None)
        inputs = replace(document, pricing=pricing).inputs()
        stack, measured, notes = plan_pricing(document.plan, inputs)
        why = f"the report's cannot be used here ({error})"
        note = Assumption(path="calibration", value=measured_name(measured), why=why)
        return stack, measured, (*notes, note)


def priced_document(
    report: Report, stack: StackSpec, measured: Measured | None, risk: float
) -> dict[str, Any]:
    """A plan as it is written to a file.

    The plan alone where that is priced alike, else its report without the search.
    """
    plan: dict[str, Any] = report.plan.to_document()
    try:
        usual = plan_pricing(report.plan, Inputs())[:2]
    except InputError:  # the usual stack cannot say it
        usual = None
    named = measured_name(measured) == report.provenance.calibration
    if usual == (stack, measured) and named and risk == DEFAULT_RISK:
        return plan
    kept = replace(report, search=None, alternatives=(), sensitivities=(), execute=None)
    return kept.to_document()


def download_document(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a person takes away of a report: its plan, with what it is priced by if unusual."""
    usual = ReportPricing(calibration="none")
    kept = carried(report)
    return dict(kept["plan"]) if report_pricing(kept) in (usual, ReportPricing()) else kept


def carried(document: Mapping[str, Any]) -> dict[str, Any]:
    """Of a report's document what its plan is priced again by; of a plan's all."""
    if "plan" not in document:
        return dict(document)
    return {key: document[key] for key in CARRIED_KEYS if key in document}


def with_risk_note(notes: tuple[Assumption, ...], risk: float) -> tuple[Assumption, ...]:
    """Assumptions with the accepted risk, where that is not the usual one."""
    if risk == DEFAULT_RISK or any(note.path == RISK_PATH for note in notes):
        return notes
    return (*notes, Assumption(path=RISK_PATH, value=risk, why=RISK_WHY))
