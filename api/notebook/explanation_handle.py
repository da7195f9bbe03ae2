"""Python handle of an explanation: tables, DataFrames, pictures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ...spec.units import format_seconds
from ..html.explanation import explanation_html
from ..views.explanation import Explanation
from .frames import Rows, report_frame

if TYPE_CHECKING:
    from .plots.canvas import Picture


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplanationHandle(Explanation):
    """An explanation that a notebook shows."""

    def to_frame(self, rows: Rows = "terms") -> Any:
        """Return a DataFrame of terms, memory, stages or layers, as that of a plan.

        Raises:
            InputError: another word, or pandas is not installed.
        """
        return report_frame(self.report, rows)

    def memory_frame(self) -> Any:
        """Return a DataFrame of bytes by term, stage and memory tier.

        Raises:
            InputError: pandas is not installed.
        """
        return self.to_frame("memory")

    def plot(self) -> Picture:
        """Draw the terms of the step.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.plans import terms_picture

        return terms_picture(self.report)

    def memory_plot(self) -> Picture:
        """Draw the memory of each stage by term.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.plans import memory_picture

        return memory_picture(self.report)

    def __repr__(self) -> str:
        most = max(self.terms, key=lambda row: float(row["seconds"]))
        step = format_seconds(self.report.prediction.step_time_s)
        share = f"{100 * most['share']:.1f} %"
        return f"<Explanation step {step}: {share} {most['term'].replace('_', ' ')}>"

    def _repr_html_(self) -> str:
        return explanation_html(self)


def explanation_handle(explanation: Explanation) -> ExplanationHandle:
    """An explanation as a notebook shows it."""
    return ExplanationHandle(
        **{field.name: getattr(explanation, field.name) for field in fields(Explanation)}
    )
