"""Service documents as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ...costmodel.explain.beside import BesideWork
from ...costmodel.explain.hidden_collectives import LayerOverlap
from ...costmodel.explain.hidden_exchanges import LayerExchanges
from ...costmodel.explain.level_bytes import LevelBytes
from ...costmodel.explain.saved_results import BlockResult
from ...planner.what_if.answer import Answer, Excess, Moved, PricedPlan
from ...planner.what_if.plan_difference import Difference
from ...planner.what_if.question import Question, Sweep
from ...planner.what_if.setting import Change, Value
from ...spec.codec import from_document
from ...spec.errors import InputError, RunError
from ...spec.plan.plan import Plan
from ...spec.report.report import Assumption, Prediction, Provenance, Report
from ...spec.techniques import TECHNIQUES
from ..notebook.explanation_handle import ExplanationHandle
from ..what_if.what_if import WhatIf

Decoded = TypeVar("Decoded")
SOURCE_NAME = "answer"
EXTRA_KEYS = ("plan_hash", "explain", "trace", "framework", "ignored")
"""Keys beside a report's own."""


def report_of(document: Mapping[str, Any]) -> Report:
    """The report in an answer, to the last digit.

    Raises:
        RunError: a document that this version cannot read.
    """
    report_fields = {name: value for name, value in document.items() if name not in EXTRA_KEYS}
    return _read(Report, report_fields)


def explanation_of(document: Mapping[str, Any]) -> ExplanationHandle:
    """The explanation in a simulation's answer."""
    explained = document["explain"]
    return ExplanationHandle(
        report=report_of(document),
        critical_stage=explained["critical_stage"],
        busy_s=tuple(explained["busy_s"]),
        results=tuple(BlockResult(**row) for row in explained["results"]),
        beside=tuple(_beside(row) for row in explained.get("beside", ())),
        exchanges=tuple(LayerExchanges(**row) for row in explained.get("exchanges", ())),
        overlaps=tuple(LayerOverlap(**row) for row in explained.get("overlaps", ())),
        sent=tuple(LevelBytes(**row) for row in explained.get("sent_bytes", ())),
    )


def _beside(row: Mapping[str, Any]) -> BesideWork:
    return BesideWork(**{name: value for name, value in row.items() if name != "hidden"})


class ResultRow:
    """Facts of one answer row."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.changes: tuple[Change, ...] = tuple(Change(**item) for item in document["changes"])
        self.value: Value | None = document.get("value")


def what_if_of(document: Mapping[str, Any]) -> WhatIf:
    """The answer to a question.

    Rows of long sweeps lack plans; the baseline's, in the row's setting, stands in for them, since
    tokens are counted by its workload. :class:`handles.ServiceWhatIfs` never exposes it.

    Raises:
        RunError: a document that this version cannot read.
    """
    baseline = _priced(document["baseline"], None)
    rows = document.get("rows", [document])
    sweep = None
    if "sweep" in document:
        swept = document["sweep"]
        sweep = Sweep(path=swept["path"], values=tuple(swept["values"]))
    answers = tuple(_answer(row, baseline) for row in rows)
    sets = () if sweep is not None else tuple((c.path, c.now) for c in answers[0].row.changes)
    return WhatIf(
        question=Question(sets=sets, sweep=sweep, scale=document["scale"]),
        baseline=baseline,
        answers=answers,
        assumptions=tuple(_read(Assumption, item) for item in document["assumptions"]),
        provenance=_read(Provenance, document["provenance"]),
    )


def _answer(row: Mapping[str, Any], baseline: PricedPlan) -> Answer:
    same, best = row["same_plan"], row["re_planned"]
    result_row = ResultRow(row)
    fallback_plan = _resized_plan(baseline.plan, result_row.changes)
    return Answer(
        row=result_row,
        same=_priced(same, fallback_plan) if same["possible"] else None,
        same_why=same.get("why", ""),
        moved=_moved(row["moved"]),
        best=_priced(best, fallback_plan) if best["possible"] else None,
        best_why=best.get("why", ""),
        best_moved=_moved(best.get("moved")),
        gain=best.get("gain"),
        kept=best.get("kept", False),
        difference=tuple(Difference(**item) for item in best.get("change", ())),
        same_difference=tuple(Difference(**item) for item in same.get("change", ())),
    )


def _resized_plan(plan: Plan, changes: tuple[Change, ...]) -> Plan:
    document = plan.to_document()
    for change in changes:
        if change.path in ("global_batch", "seq_len"):
            document["workloads"]["main"][change.path] = change.now
    return _read(Plan, document)


def _priced(document: Mapping[str, Any], fallback_plan: Plan | None) -> PricedPlan:
    plan = fallback_plan
    if plan is None or "plan" in document:
        plan = _read(Plan, document["plan"])
    return PricedPlan(
        plan=plan,
        prediction=_read(Prediction, document["prediction"]),
        excess=tuple(Excess(**item) for item in document["excess"]),
        idle_devices=document["idle_devices"],
    )


def _moved(document: Mapping[str, Any] | None) -> Moved | None:
    return None if document is None else Moved(**document)


def _read(kind: type[Decoded], document: Any) -> Decoded:
    try:
        return from_document(kind, document, SOURCE_NAME, {"techniques": TECHNIQUES})
    except InputError as error:
        why = f"{error.field}: got {error.given}"
        raise RunError(f"the service answers as another version does ({why})") from None
