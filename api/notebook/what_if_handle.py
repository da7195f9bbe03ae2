"""Python handle of a what-if: rows, a DataFrame, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, overload

from ...planner.what_if.answer import Answer, PricedPlan
from ...spec.cluster.measured import calibration_of
from ...spec.plan.plan import Plan
from ...spec.units import format_seconds
from ..html.report import html_table
from ..html.what_if_svg import what_if_svg
from ..problem.resolve import Inputs, plan_pricing
from ..what_if.document import what_if_document
from ..what_if.rows import (
    change_text,
    difference_text,
    fits_text,
    gain_text,
    moved_text,
    tokens_per_s,
    tokens_text,
)
from ..what_if.what_if import WhatIf
from .frames import frame
from .plan_handle import PlanHandle

if TYPE_CHECKING:
    from .plots.canvas import Picture

HEADS = ("what if", "same plan", "moved", "re-planned", "tokens/s", "gain", "change")


@dataclass(frozen=True, kw_only=True, repr=False)
class WhatIfs(Sequence[dict[str, Any]]):
    """Answers to a question, one flat row per setting.

    A row holds every changed key with its new value, then ``baseline_s``; ``same_plan_s``,
    ``same_plan_fits``, ``same_plan_why`` (if missing), ``same_plan_change`` (what follows another
    number of devices or another batch), ``moved_term``, ``moved_s``;
    ``re_planned_s``, ``gain``, ``kept``, ``change``, ``re_planned_why``; and tokens a second of the
    whole cluster. Missing values are None.
    """

    result: WhatIf

    def __len__(self) -> int:
        return len(self.result.answers)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self._row(answer) for answer in self.result.answers[index]]
        return self._row(self.result.answers[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(answer) for answer in self.result.answers)

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """Re-planned plan of each row; None where there is none."""
        return tuple(a.best.plan if a.best is not None else None for a in self.result.answers)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that ``plan what-if --json`` writes."""
        return what_if_document(self.result)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self)

    def plot(self) -> Picture:
        """Draw sweep curves, or the terms of both answers.

        Raises:
            InputError: matplotlib is not installed.
        """
        from .plots.what_ifs import what_if_picture

        return what_if_picture(self.result)

    def to_svg(self) -> str:
        """Draw the answers as SVG text."""
        return what_if_svg(self.result)

    def _row(self, answer: Answer) -> dict[str, Any]:
        same, best, moved = answer.same, answer.best, answer.moved
        return {
            **{change.path: change.now for change in answer.row.changes},
            "baseline_s": self.result.baseline.step_time_s,
            "same_plan_s": None if same is None else same.step_time_s,
            "same_plan_fits": None if same is None else same.prediction.feasible,
            "same_plan_why": answer.same_why or None,
            "same_plan_change": ", ".join(map(str, answer.same_difference)),
            "moved_term": None if moved is None else moved.term,
            "moved_s": None if moved is None else moved.seconds,
            "re_planned_s": None if best is None else best.step_time_s,
            "gain": answer.gain,
            "kept": answer.kept,
            "change": difference_text(answer),
            "re_planned_why": answer.best_why or None,
            "same_plan_tokens_per_s": None if same is None else tokens_per_s(same),
            "re_planned_tokens_per_s": None if best is None else tokens_per_s(best),
        }

    def __repr__(self) -> str:
        return "\n".join(" | ".join(filter(None, _cells(answer))) for answer in self.result.answers)

    def _repr_html_(self) -> str:
        rows = [[escape(cell) for cell in _cells(answer)] for answer in self.result.answers]
        base = f"baseline: {format_seconds(self.result.baseline.step_time_s)} a step"
        name = escape(self.result.baseline.plan.model.name)
        return f"<div><p><b>{name}</b>, {base}</p>{html_table(HEADS, rows)}</div>"


def _cells(answer: Answer) -> list[str]:
    same, best = answer.same, answer.best
    return [
        ", ".join(change_text(change) for change in answer.row.changes),
        f"impossible: {answer.same_why}" if same is None else _seconds(same),
        "" if same is None else moved_text(answer.moved),
        "impossible" if best is None else _seconds(best),
        "" if best is None else f"{tokens_text(best)} tokens/s",
        gain_text(answer),
        difference_text(answer),
    ]


def _seconds(priced: PricedPlan) -> str:
    over = fits_text(priced)
    return format_seconds(priced.step_time_s) + (f" ({over})" if over else "")


def handle_inputs(handle: PlanHandle, inputs: Inputs) -> Inputs:
    """Complete flags with those that priced the handle.

    Attention and overlap are named only where they differ from the stack's defaults, so that a
    change of stack or number format chooses them anew.
    """
    measured = handle.measured
    name = "none" if measured is None else None
    stored = calibration_of(measured)
    calibration = name if stored is None else stored.name
    priced_inputs = Inputs(stack=handle.stack.name, calibration=calibration)
    usual, _, _ = plan_pricing(handle.plan, priced_inputs)
    priced_inputs = replace(
        priced_inputs,
        attention=None if usual.attention == handle.stack.attention else handle.stack.attention,
        overlap=None if usual.overlaps == handle.stack.overlaps else handle.stack.overlap,
    )
    named = {key: getattr(inputs, key) or getattr(priced_inputs, key) for key in
             ("stack", "attention", "overlap", "calibration")}  # fmt: skip
    return replace(inputs, **named)
