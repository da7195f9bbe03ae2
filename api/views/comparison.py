"""Two plans side by side: decisions, and terms of both.

Where both do the same work a step, seconds are per step; where batches or sequences differ, per
million tokens. The terms' differences add up to the whole difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...costmodel.explain.compare import TermPair, paired_terms
from ...planner.what_if.plan_difference import Difference, plan_difference
from ...spec.report.report import BREAKDOWN_TERMS, MEMORY_TERMS, MemoryRow, Prediction, Report
from ...spec.workload.document_lengths import lengths_text
from ...spec.workload.expert_load import load_text
from ...spec.workload.workload import Workload
from .report_text import cluster_text, peak_memory_row, trained_text

TermUnit = Literal["step", "million tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSide:
    """A plan under its typed name, with its prediction."""

    name: str
    report: Report

    @property
    def prediction(self) -> Prediction:
        """Time, throughput and memory of a step."""
        return self.report.prediction

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all devices together."""
        return self.prediction.samples_per_s * self.report.plan.workload.seq_len

    @property
    def peak_memory_row(self) -> MemoryRow:
        """Memory where the largest fraction of it is in use."""
        return peak_memory_row(self.prediction)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two plans with their predictions."""

    first: ComparisonSide
    second: ComparisonSide

    @property
    def questions(self) -> tuple[Difference, ...]:
        """Differences in the question: model, cluster, workload."""
        return _problem_differences(self.first.report, self.second.report)

    @property
    def decisions(self) -> tuple[Difference, ...]:
        """Decisions in which the second plan differs."""
        return plan_difference(self.first.report.plan, self.second.report.plan)

    @property
    def unit(self) -> TermUnit:
        """Unit of the seconds in :attr:`terms`."""
        first, second = (side.report.plan.workload for side in (self.first, self.second))
        return "step" if first.tokens_per_step == second.tokens_per_step else "million tokens"

    @property
    def speed(self) -> float:
        """Tokens a second of the second over those of the first."""
        return self.second.tokens_per_s / self.first.tokens_per_s

    @property
    def terms(self) -> list[TermPair]:
        """Seconds by term on each plan's critical stage; sums are :meth:`whole_s`."""
        first, second = (
            {term: s * self._scale(side) for term, s in side.prediction.breakdown_s.items()}
            for side in (self.first, self.second)
        )
        return paired_terms(first, second, BREAKDOWN_TERMS)

    @property
    def whole_s(self) -> tuple[float, float]:
        """Seconds of each plan in :attr:`unit`."""
        first, second = (
            side.prediction.step_time_s * self._scale(side) for side in (self.first, self.second)
        )
        return first, second

    @property
    def memory(self) -> list[TermPair]:
        """Bytes by term on each plan's fullest device; sums are reserved bytes."""
        return paired_terms(
            self.first.peak_memory_row.by, self.second.peak_memory_row.by, MEMORY_TERMS
        )

    def _scale(self, side: ComparisonSide) -> float:
        return 1.0 if self.unit == "step" else 1e6 / side.report.plan.workload.tokens_per_step

    def to_document(self) -> dict[str, Any]:
        """JSON-ready: both reports, and their differences."""
        return {
            "first": {"name": self.first.name, **self.first.report.to_document()},
            "second": {"name": self.second.name, **self.second.report.to_document()},
            "questions": _rows(self.questions),
            "decisions": _rows(self.decisions),
            "speed": self.speed,
            "unit": self.unit.replace(" ", "_"),
            "whole_s": list(self.whole_s),
            "terms": [
                {"term": p.term, "first_s": p.first, "second_s": p.second, "by_s": p.by}
                for p in self.terms
            ],
            "memory": [
                {"term": p.term, "first_bytes": p.first, "second_bytes": p.second, "by_bytes": p.by}
                for p in self.memory
            ],
        }


def _rows(differences: tuple[Difference, ...]) -> list[dict[str, str]]:
    return [{"axis": d.axis, "first": d.was, "second": d.now} for d in differences]


def _problem_differences(first: Report, second: Report) -> tuple[Difference, ...]:
    differences = []
    models = first.plan.model, second.plan.model
    if models[0].name != models[1].name:
        differences.append(Difference("model", models[0].name, models[1].name))
    elif models[0] != models[1]:
        differences.append(Difference("model", "", "of one name, with other layers"))
    pairs = [("cluster", cluster_text(first), cluster_text(second))]
    workloads = _workload_texts(first.plan.workload), _workload_texts(second.plan.workload)
    pairs += [(axis, was, workloads[1][axis]) for axis, was in workloads[0].items()]
    return (*differences, *(Difference(*row) for row in pairs if row[1] != row[2]))


def _workload_texts(workload: Workload) -> dict[str, str]:
    return {
        "global batch": str(workload.global_batch),
        "sequence": str(workload.seq_len),
        "dtype": workload.dtype.text,
        "optimizer": workload.optimizer,
        "documents": lengths_text(workload.lengths, workload.seq_len),
        "load of experts": load_text(workload.expert_load),
        "trained": trained_text(workload).removeprefix(", ") or "all",
        "gradient clipping": str(workload.gradient_clip_norm),
    }
