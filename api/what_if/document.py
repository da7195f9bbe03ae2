"""JSON document of a what-if answer, a stable contract (docs/what_if.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...planner.what_if.answer import Answer, Moved, PricedPlan
from ...planner.what_if.setting import Change
from .what_if import WhatIf


def what_if_document(answered: WhatIf) -> dict[str, Any]:
    """The document: SI, fractions, every key present.

    ``rows`` has one entry per sweep value; without a sweep its keys are at the top.
    """
    question = answered.question
    document: dict[str, Any] = {
        "plan_hash": answered.baseline.plan.hash,
        "baseline": _priced(answered.baseline),
        "scale": question.scale,
        "assumptions": [asdict(note) for note in answered.assumptions],
        "provenance": asdict(answered.provenance),
    }
    if question.sweep is None:
        return document | row_document(answered.answers[0])
    swept = {"path": swept_path(answered), "values": list(question.sweep.values)}
    rows = [{"value": a.row.value, **row_document(a)} for a in answered.answers]
    return document | {"sweep": swept, "rows": rows}


def swept_path(answered: WhatIf) -> str:
    """The swept key, as the list of keys writes it."""
    paths = [change.path for change in answered.answers[0].row.changes]
    sweep = answered.question.sweep
    key = "" if sweep is None else sweep.path.casefold().replace("-", "_")
    return next(path for path in paths if path.casefold().replace("-", "_") == key)


def row_document(answer: Answer) -> dict[str, Any]:
    """``changes``, ``same_plan``, ``re_planned`` and ``moved`` of one row."""
    same: dict[str, Any] = {"possible": False, "why": answer.same_why}
    if answer.same is not None:
        change = [item._asdict() for item in answer.same_difference]
        same = {"possible": True, **_priced(answer.same), "change": change}
    best: dict[str, Any] = {"possible": False, "why": answer.best_why}
    if answer.best is not None:
        best = {
            "possible": True,
            **_priced(answer.best),
            "gain": answer.gain,
            "kept": answer.kept,
            "change": [item._asdict() for item in answer.difference],
            "moved": _moved(answer.best_moved),
            "search": _search(answer),
        }
        if answer.best_why:
            best["why"] = answer.best_why
    return {
        "changes": [change_document(change) for change in answer.row.changes],
        "same_plan": same,
        "re_planned": best,
        "moved": _moved(answer.moved),
    }


def change_document(change: Change) -> dict[str, Any]:
    """``path``, ``was`` and ``now``."""
    return change._asdict()


def _priced(priced: PricedPlan) -> dict[str, Any]:
    return {
        "plan": priced.plan.to_document(),
        "plan_hash": priced.plan.hash,
        "prediction": priced.prediction.to_document(),
        "excess": [item._asdict() for item in priced.excess],
        "idle_devices": priced.idle_devices,
    }


def _moved(moved: Moved | None) -> dict[str, Any] | None:
    return None if moved is None else moved._asdict()


def _search(answer: Answer) -> dict[str, Any] | None:
    """Effort of a search, without seconds, so documents are reproducible.

    The gap is the answer's, which may be the same plan, kept.
    """
    search, best = answer.search, answer.best
    if search is None or best is None:
        return None
    bound_s = search.lower_bound_s
    gap = max(0.0, best.step_time_s / bound_s - 1) if bound_s else 0.0
    return {
        "candidates": search.candidates,
        "lower_bound_s": search.lower_bound_s,
        "gap": gap,
        "stopped_by": search.stopped_by,
    }
