"""Answers of a service that stay documents: diagnoses and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...spec.units import format_seconds
from ..html.diagnosis import diagnosis_html
from ..html.size import answer_text, size_html


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServiceDiagnosis:
    """A service's diagnosis of a run; ``document`` is that of ``plan diagnose --json``."""

    document: Mapping[str, Any] = field()

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, as that of a diagnosis made here."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        return diagnosis_html(self.document)

    def __repr__(self) -> str:
        bars = self.document["waterfall"]
        step = format_seconds(bars["measured_s"])
        return f"<Diagnosis step {step}: {bars['explained']:.0%} of the loss explained>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServiceSize:
    """A service's size of a training; ``document`` is that of ``plan size --json``."""

    document: Mapping[str, Any] = field()

    def to_document(self) -> dict[str, Any]:
        """JSON-ready form, as that of a size found here."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        return size_html(self.document)

    def __repr__(self) -> str:
        if "ways" in self.document:
            hours = [f"{way['name']} {_hours(way['hours'])}" for way in self.document["ways"]]
            return f"<FineTuning {self.document['model']}: {', '.join(hours)}>"
        return f"<TrainingSize {self.document['model']}: {answer_text(self.document)}>"


def _hours(hours: float | None) -> str:
    return "refused" if hours is None else f"{hours:.3g} h"
