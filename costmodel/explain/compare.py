"""Two breakdowns term by term: of two plans, or prediction and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...spec.report.report import BREAKDOWN_TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class TermDifference:
    """Predicted and measured seconds of a term; ``share`` of the step."""

    term: str
    predicted_s: float
    measured_s: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPair:
    """One term of both sides in one unit, seconds or bytes."""

    term: str
    first: float
    second: float

    @property
    def by(self) -> float:
        """Second minus first; over all terms, the difference of the sums."""
        return self.second - self.first


def paired_terms(
    first: Mapping[str, float], second: Mapping[str, float], order: Sequence[str]
) -> list[TermPair]:
    """Terms nonzero on either side: those of ``order``, then the others."""
    return [
        TermPair(term=term, first=first.get(term, 0), second=second.get(term, 0))
        for term in dict.fromkeys((*order, *first, *second))
        if first.get(term) or second.get(term)
    ]


def compare_terms(
    predicted_s: Mapping[str, float], measured_s: Mapping[str, float], step_time_s: float
) -> list[TermDifference]:
    """Differences by term, in breakdown order, without terms 0 on both sides.

    Args:
        predicted_s: breakdown of the prediction.
        measured_s: breakdown of one traced step, on the same stage.
        step_time_s: measured step, to which the terms of the slower traced one are scaled.
    """
    traced_s = sum(measured_s.values())
    scale = step_time_s / traced_s if traced_s else 1.0
    scaled_s = {term: seconds * scale for term, seconds in measured_s.items()}
    return [
        TermDifference(
            term=pair.term,
            predicted_s=pair.first,
            measured_s=pair.second,
            share=pair.second / step_time_s if step_time_s else 0.0,
        )
        for pair in paired_terms(predicted_s, scaled_s, BREAKDOWN_TERMS)
    ]


def relative_error(predicted: float, measured: float) -> float:
    """``predicted / measured - 1``."""
    return predicted / measured - 1 if measured else float("inf")
