"""Predicted against measured, term by term: what a run says about the model's prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..spec.report import BREAKDOWN_TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class TermDifference:
    """One term of the step: predicted and measured seconds; ``share`` of the measured step."""

    term: str
    predicted_s: float
    measured_s: float
    share: float


def compare_terms(
    predicted_s: Mapping[str, float], measured_s: Mapping[str, float], step_time_s: float
) -> list[TermDifference]:
    """Differences by term, in the order of the breakdown; terms that are 0 on both sides left out.

    Args:
        predicted_s: breakdown of the prediction.
        measured_s: breakdown of one traced step, on the same stage.
        step_time_s: measured step; the traced one is slower by its tracing, so its terms are
            scaled to this.
    """
    traced_s = sum(measured_s.values())
    scale = step_time_s / traced_s if traced_s else 1.0
    found = []
    for term in dict.fromkeys((*BREAKDOWN_TERMS, *predicted_s, *measured_s)):
        before, after = predicted_s.get(term, 0.0), measured_s.get(term, 0.0) * scale
        if before or after:
            share = after / step_time_s if step_time_s else 0.0
            found.append(
                TermDifference(term=term, predicted_s=before, measured_s=after, share=share)
            )
    return found


def relative_error(predicted: float, measured: float) -> float:
    """``predicted / measured - 1``."""
    return predicted / measured - 1 if measured else float("inf")
